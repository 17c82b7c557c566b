"""The Python that Spark's workers run on: this one, with PySpark from where it is installed.

Spark lets every Python process that it starts import PySpark from an archive beside its jars.
Python keeps no compiled modules of an archive, so each process compiles all of them again, which
takes it about a second. Here the archive and the installed package are the same, so Spark gets a
script in the place of Python, which takes the archive off the path.
"""

import os
import shlex
import sys
from pathlib import Path

_SCRIPT = """\
#!/bin/sh
# Made by headwater.spark: Python, with PySpark from where it is installed.
kept=
IFS=:
for each in $PYTHONPATH; do
    case "$each" in
        */pyspark.zip) ;;
        *) kept="$kept${{kept:+:}}$each" ;;
    esac
done
unset IFS
export PYTHONPATH="$kept"
exec {python} "$@"
"""


def prepare(directory: Path) -> None:
    """Let Spark's workers run on this Python: sets PYSPARK_PYTHON, unless it is set already.

    SPARK_HOME may name another PySpark than the one that is installed here; then its archive is
    the right one.
    """
    ours = sys.executable if "SPARK_HOME" in os.environ else str(script(directory))
    os.environ.setdefault("PYSPARK_PYTHON", ours)


def script(directory: Path) -> Path:
    """Write the script below a directory; returns its path."""
    place = directory / "python" / "python3"
    place.parent.mkdir(parents=True, exist_ok=True)
    # Complete or not there: another process may be about to run it.
    unfinished = place.with_name(f"python3.{os.getpid()}")
    unfinished.write_text(_SCRIPT.format(python=shlex.quote(sys.executable)))
    unfinished.chmod(0o755)
    unfinished.replace(place)
    return place
