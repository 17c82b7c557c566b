"""An archive of the classes that Spark loads, so that Java starts in half the time.

    python -m tests.spark.class_archive FILE

Java writes it when it ends after a run of a pipeline, and the Java of every test reads it: parsed
and verified once instead of at each start. A session with its first job takes 9 s instead of 16,
a run of the pipeline that `init` makes 32 s instead of 46. An archive that does not fit (another
Java, other jars) is ignored.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

#: Where `make` puts it.
PLACE = Path(sys.prefix, "classes.jsa")
# It lives for seconds, so the compiler for code that runs for long costs more than it gains; and
# nobody reads what Java thinks of an archive.
_ALWAYS = "-XX:TieredStopAtLevel=1 -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
VARIABLE = "SPARK_SUBMIT_OPTS"


def use() -> None:
    """For every Java of Spark that this process starts, or a child of it."""
    archive = f" -XX:SharedArchiveFile={PLACE}" if PLACE.is_file() else ""
    os.environ.setdefault(VARIABLE, _ALWAYS + archive)


def make(target: Path) -> None:
    """A file that is not whole would take Java down, so it gets its name when it is."""
    from headwater.pipeline.project import init  # here: every run of pytest imports this module
    from tests.e2e.process import BrokerProcess

    with tempfile.TemporaryDirectory(dir=target.parent, prefix="classes-") as directory:
        place = Path(directory)
        made = place / target.name
        with BrokerProcess(place / "data") as broker:
            servers = f"127.0.0.1:{broker.ports['flight']}"
            for topic in ("orders/1", "sensors/a"):
                broker.publisher(topic).messages(b'{"id": 1}', b'{"id": 2}')
            init.make(place / "project")
            command = ["pipeline", "run", "--once", "--project", str(place / "project")]
            done = subprocess.run(
                [sys.executable, "-m", "headwater", *command, "--servers", servers],
                env=os.environ | {VARIABLE: f"{_ALWAYS} -XX:ArchiveClassesAtExit={made}"},
                stdout=subprocess.PIPE,  # Java has it too: this ends when Java has ended
                stderr=subprocess.STDOUT,
                text=True,
            )
        if done.returncode:
            sys.exit(f"no archive of Java's classes, as the pipeline failed:\n{done.stdout}")
        made.rename(target)


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve())
