"""Documentation that cannot rot: generated parts are fresh, every command and setting is in it,
links and paths lead somewhere, and phrases that operators stumbled over do not come back."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.config import DECLARED, SETTINGS, Array
from headwater.spark.options import OPTIONS, Option
from headwater.spark.session import settings
from tests.generated_docs import PARTS, ROOT, Part, all_commands

CONFIGURATION = ROOT / "docs" / "configuration.md"
CLI = ROOT / "docs" / "cli.md"
SPARK = ROOT / "docs" / "spark.md"
DEPENDENCIES = ROOT / "docs" / "dependencies.md"

FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(<?([^)\s>]+)>?(?: [^)]*)?\)|^\[[^\]]+\]: +(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#+ +(.+?) *#*$", re.MULTILINE)

SOURCE = ROOT / "src" / "headwater"
#: Names in code that may be a file: `broker/router.py`, `cli/`, `protocols/bulk.py: alike`.
NAMED = re.compile(r"`([\w.*-]+(?:/[\w.*-]+)*/?)(?:: (\w+))?`")
FOLDERS = ("bench", "docs", "fuzz", "requirements", "src", "tests", "torture")

#: Phrases that name nothing, or have a plainer word in the trade; each with that word.
PHRASES = {
    r"put (it|them|all|dead letters) back": "redrive",
    r"dead letters?\W+(are |were |is |was )?(put back|given up|purged)": "redriven, deleted",
    r"give up the dead|gives? (its|the) dead letters|alone for good": "delete",
    r"make a token|, this once|shown this once|\(this once\)": "is shown only once",
    r"the configuration says where|directory of the log\. without": "data directory (default: …)",
    r"after so many messages": "after N messages",
    r"header, where they exist": "if the protocol has headers",
    r"was not told": "wrong or missing secret",
    r"base64 is not base64": "content is not valid base64",
    r"no_mark": "missing_csrf_header",
    r"what messages say": "message content",
    r"\bin all\b(?! \w)": "total",
    r"1 in 100\b": "p99",
    r"seen since(?! it)": "first seen",
    r"yet to pass|yet to read": "behind the end of the log",
    r"\bmend(s|ed|ing)?\b": "repair",
    r"those that nobody did": "messages nobody acknowledged",
    r"so is service": "the broker accepts publishes again",
    r"a query that nobody knows": "a query without a name",
    r"could be two, it is none": "a name that fits two is refused",
    r"this should not happen": "unexpected error",
}
TEXTS = (".css", ".html", ".js", ".json", ".md", ".proto", ".py", ".sql", ".yml")


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_generated_parts_are_fresh(part: Part) -> None:
    text = part.file.read_text()
    assert text == part.renew(text), f"{part.file.name} is stale; run `make docs`"


@pytest.mark.parametrize("key", SETTINGS)
def test_every_key_is_documented(key: str) -> None:
    text = CONFIGURATION.read_text()
    assert f"`{key}`" in text
    assert f"`{SETTINGS[key].variable}`" in text


@pytest.mark.parametrize("key", [key for key in DECLARED if key not in SETTINGS])
def test_every_entry_is_documented(key: str) -> None:
    text, declared = CONFIGURATION.read_text(), DECLARED[key]
    if not isinstance(declared, Array):
        assert f"### `[{key}]`\n" in text
        return
    assert f"### `[[{key}]]`\n" in text
    assert all(f"`{setting.key}`" in text for setting in declared.settings.values())


@pytest.mark.parametrize(
    ("path", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in all_commands()]
)
def test_every_command_and_option_is_documented(path: list[str], command: Any) -> None:
    name = " ".join(["headwater", *path])
    assert command.help, f"`{name}` has no help"
    text = CLI.read_text()
    assert f"## `{name}`\n" in text
    section = text.partition(f"## `{name}`\n")[2].partition("\n## ")[0]
    for parameter in command.params:
        spelling = parameter.opts[0]
        assert parameter.help, f"`{name}`: {spelling} has no help"
        if spelling.startswith("-"):
            assert all(option in section for option in parameter.opts), f"`{name}`: {spelling}"


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_of_spark_is_documented(option: Option) -> None:
    assert f"\n| `{option.name}` | " in SPARK.read_text()


def test_every_setting_of_a_spark_session_is_documented() -> None:
    table = SPARK.read_text().partition("## The session\n")[2].partition("\n## ")[0]
    set_by_us = settings(ROOT, ROOT, cores=2)
    assert set(re.findall(r"`(spark\.[\w.]+)`", table)) == set(set_by_us)


def test_every_dependency_is_documented() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for extra in project["project"]["optional-dependencies"].values():
        listed += extra
    # An extra may take another extra of this package with it.
    others = [each for each in listed if not each.startswith("headwater[")]
    names = [re.split(r"[^A-Za-z0-9._-]", each)[0] for each in others]
    text = DEPENDENCIES.read_text()
    missing = [name for name in names if f"`{name}`" not in text]
    assert not missing, f"say in docs/dependencies.md why there is {', '.join(missing)}"


def pages() -> Iterator[Path]:
    """The Markdown files of the project, not those of installed packages."""
    for file in sorted(ROOT.rglob("*.md")):
        parts = file.relative_to(ROOT).parts
        if parts[0] != "data" and not any(part.startswith(".") for part in parts):
            yield file


@pytest.mark.parametrize("page", list(pages()), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_is_dead(page: Path) -> None:
    dead = [link for link in links(page) if not leads_somewhere(page, link)]
    assert not dead, f"{page.relative_to(ROOT)} links to {', '.join(dead)}"


def links(page: Path) -> Iterator[str]:
    """The relative links of a page, without what only looks like one in a block of code."""
    for match in LINK.finditer(FENCE.sub("", page.read_text())):
        link = match[1] or match[2]
        if not re.match(r"[a-z][a-z0-9+.-]*:", link):
            yield link


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    if not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors(target)


def anchors(page: Path) -> set[str]:
    """The names that code hosts give to headings."""
    headings = HEADING.findall(FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_dead_links_are_found(tmp_path: Path) -> None:
    """Otherwise a mistake in this file would make everything above pass."""
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text("# A `thing`, or two\n")
    page.write_text(
        "# Here\n[a](other.md) [b](none.md) [c](https://example.org) [d](other.md#a-thing-or-two)\n"
        "[e](other.md#nothing) [f](#here) [g](#there)\n```\n[h](never.md)\n```\n![i](no.png)\n"
    )
    dead = [link for link in links(page) if not leads_somewhere(page, link)]
    assert dead == ["none.md", "other.md#nothing", "#there", "no.png"]


def named_files(page: Path) -> Iterator[str]:
    """What stands in code on a page and looks like a file or a folder of this repository, or like
    something in such a file."""
    for match in NAMED.finditer(FENCE.sub("", page.read_text())):
        first, *others = match[1].split("/")
        if (
            match[1].endswith(".py")
            or (others and first in FOLDERS)
            or (others and (SOURCE / first).is_dir() and (not others[-1] or "." in others[-1]))
        ):
            yield match[0].strip("`")


def is_there(name: str) -> bool:
    """Wherever in the repository: pages name files as seen from the room that they tell of."""
    path, _, symbol = name.partition(": ")
    found = [*ROOT.glob(path)] if path.split("/")[0] in FOLDERS else _anywhere(path)
    if symbol:
        found = [each for each in found if re.search(_definition(symbol), each.read_text(), re.M)]
    return bool(found)


def _anywhere(path: str) -> list[Path]:
    return [each for folder in FOLDERS for each in (ROOT / folder).rglob(path)]


def _definition(symbol: str) -> str:
    return rf"^ *(?:(?:async )?def|class) {symbol}\b|^{symbol}\b.*="


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in pages()])
def test_every_file_that_a_page_names_exists(page: str) -> None:
    gone = [name for name in named_files(ROOT / page) if not is_there(name)]
    assert not gone, f"{page} names {', '.join(gone)}"


def test_names_of_files_are_found(tmp_path: Path) -> None:
    """Otherwise a mistake in this file would make everything above pass."""
    page = tmp_path / "page.md"
    page.write_text(
        "`broker/router.py` `broker/no.py` `cli/` `nothing/` `protocols/bulk.py: alike`\n"
        "`protocols/bulk.py: unlike` `src/headwater/protocols/amqp` `run/queries.py` `run/no.py`\n"
        "`tests/vectors/*.toml` `tests/vectors/*.csv` `bench/wire/` `bench/wireless/` `*.py`\n"
        "`tests/x/` `message.py` `never.py` `log.sync` `pipeline/storage/tables` `sensors/a`\n"
        "```\n`broker/never.py`\n```\n`topics/{topic}` `src/headwater/cli` `data/state.db`\n"
    )
    gone = [name for name in named_files(page) if not is_there(name)]
    assert gone == [
        "broker/no.py",
        "protocols/bulk.py: unlike",
        "src/headwater/protocols/amqp",
        "run/no.py",
        "tests/vectors/*.csv",
        "bench/wireless/",
        "tests/x/",
        "never.py",
    ]


def texts() -> Iterator[Path]:
    """Everything that users, operators and readers of the source read."""
    yield ROOT / "README.md"
    for folder in (SOURCE, ROOT / "docs"):
        yield from (file for file in sorted(folder.rglob("*")) if file.suffix in TEXTS)


@pytest.mark.parametrize("phrase", PHRASES)
def test_no_phrase_comes_back(phrase: str) -> None:
    # A sentence may go on in the next line, behind the mark of a comment.
    pattern = re.compile(phrase.replace(" ", r"(?:\s|//|#|\*)+"), re.IGNORECASE)
    found = [str(file.relative_to(ROOT)) for file in texts() if pattern.search(file.read_text())]
    assert not found, f'say "{PHRASES[phrase]}" in {", ".join(found)}'
