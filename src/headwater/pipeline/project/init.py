"""Makes a new project from the templates beside this file."""

import re
from pathlib import Path

from headwater.errors import HeadwaterError

TEMPLATES = Path(__file__).parent / "templates"


def make(directory: Path) -> list[Path]:
    """Returns the files. Nothing that is there already is touched: then nothing is made."""
    files = [each for each in sorted(TEMPLATES.rglob("*")) if each.is_file()]
    files = [each for each in files if "__pycache__" not in each.parts]
    made = {each: directory / each.relative_to(TEMPLATES) for each in files}
    for target in made.values():
        if target.exists():
            raise HeadwaterError(f"{target} is there already; make the project in a new directory")
    name = re.sub(r"\W+", "_", directory.resolve().name).strip("_") or "pipeline"
    for template, target in made.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        text = template.read_text().replace("{name}", name)
        target.write_text(text.replace("{storage}", (directory.resolve() / "storage").as_uri()))
    return list(made.values())
