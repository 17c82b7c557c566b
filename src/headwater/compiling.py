"""`python -m headwater.compiling`: compile the hot modules for this environment (`compiled`).

Needs mypy, setuptools, a C compiler and Python's header files. Set-up runs it; where something of
that is missing it says so, and plain Python is used.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from headwater import compiled

SCRIPT = """
import sys
from mypyc.build import mypycify
from setuptools import setup

setup(
    name="headwater-compiled",
    script_args=["-q", "build_ext", "--build-lib", sys.argv[1], "--build-temp", "objects"],
    ext_modules=mypycify(
        ["--ignore-missing-imports", "--disable-error-code=unused-ignore", *sys.argv[2:]],
        opt_level="2",
        debug_level="0",
    ),
)
"""


def missing() -> str | None:
    """What compiling needs and is not there, for a person."""
    for package in ("mypyc", "setuptools"):
        if find_spec(package) is None:
            return f"the package {package}"
    compiler = os.environ.get("CC") or (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"a C compiler ({compiler})"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "Python's header files (on Debian: apt-get install python3-dev)"
    return None


def build() -> None:
    """Make the modules, and put them in the place of those that were there."""
    with tempfile.TemporaryDirectory(prefix="headwater-compiling-") as directory:
        work = Path(directory)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(compiled.SOURCE, work / "headwater", ignore=ignored)
        made = compiled.digest()
        log = work / "log"
        paths = [f"headwater/{module}" for module in compiled.MODULES]
        with log.open("wb") as output:
            ended = subprocess.run(
                [sys.executable, "-c", SCRIPT, "made", *paths],
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
            )
        if ended.returncode:
            raise RuntimeError("\n".join(log.read_text(errors="replace").splitlines()[-20:]))
        files = {
            ".".join(each.relative_to(work / "made").parts).partition(".cpython-")[0]: each
            for each in sorted((work / "made").rglob("*.so"))
        }
        fresh = compiled.PLACE.with_name(f"{compiled.PLACE.name}.{os.getpid()}")
        fresh.mkdir(parents=True)
        for name, file in files.items():
            shutil.copy(file, fresh / f"{name}.so")
        manifest = {"digest": made, "files": {name: f"{name}.so" for name in files}}
        (fresh / compiled.MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        with suppress(FileNotFoundError):
            shutil.rmtree(compiled.PLACE)
        fresh.rename(compiled.PLACE)


def main() -> int:
    if compiled.state == "compiled":
        return 0
    if (what := missing()) is not None:
        print(f"nothing is compiled, plain Python is used: {what} is missing")
        return 0
    print("compiling the modules of the hot path (a minute, once) ...", flush=True)
    try:
        build()
    except RuntimeError as error:
        print(f"{error}\nthe modules cannot be compiled, plain Python is used")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
