"""A Spark session that is ready for the log: measured settings, few words, files in one place.

Any other SparkSession works with `format("headwater")` as well, but without these settings.

Below the directory:

    warehouse/      tables
    metastore/      Derby's files, if Hive is used
    java/           how to start the Java that pip brought; see java.py
    python/         how to start Python's workers; see python.py
    run-<random>/   files of a running session; a later one removes those of a killed session
"""

import contextlib
import fcntl
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.spark import java, jvm, python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DIRECTORY_VARIABLE = "HEADWATER_SPARK_DIR"
MISSING = "PySpark is not installed; get it with pip install 'headwater[spark]'"

_LOGGING = Path(__file__).with_name("log4j2.properties")
_LOCK = "lock"
_VFORK_DEPRECATED = 25  # from this Java on it works, but not without many words
# The path of a socket has at most 107 bytes on Linux and 103 on macOS; Spark appends 43.
_SOCKET_PATH_BYTES = 60


def session(
    app: str = "headwater",
    master: str = "local[*]",
    directory: Path | str | None = None,
    conf: Mapping[str, object] | None = None,
    **more: object,
) -> "SparkSession":
    """A Spark session. If there is one in this process already, that one, with `conf` applied.

    `directory`: where Spark puts its files; else below $HEADWATER_SPARK_DIR, else in the system's
    place for temporary files. Settings of Spark win over those made here and come as a mapping,
    or by name with `_` for `.`: `spark_ui_enabled=True`; `spark_` may be left out.
    """
    try:
        from pyspark.sql import SparkSession

        exists = jvm.context_exists()
    except ImportError:
        raise HeadwaterError(MISSING) from None
    given = _given(conf or {}, more)
    builder: Any = SparkSession.builder
    if not exists:
        home = _home(directory)
        version = java.prepare(home)
        _set_environment(master, home)
        ours = settings(home, _run_of(home), version, _cores(master))
        if not _chooses_collector(given):
            ours["spark.driver.defaultJavaOptions"] += " -XX:+UseParallelGC"
        builder = builder.appName(app).master(master).config(map=ours)
    spark: SparkSession = builder.config(map=given).getOrCreate()
    return spark


def _chooses_collector(given: Mapping[str, str]) -> bool:
    """Whether the caller has chosen Java's garbage collector: Java does not start with two.

    Otherwise it is the one for throughput. Short pauses, which the usual one is made for, matter
    less here.
    """
    places = (
        given.get("spark.driver.extraJavaOptions"),
        given.get("spark.driver.defaultJavaOptions"),
        *(os.environ.get(f"{name}_OPTIONS") for name in ("JAVA_TOOL", "JDK_JAVA", "_JAVA")),
    )
    return any(re.search(r"-XX:\+Use\w+GC", each) for each in places if each)


def settings(
    home: Path, run: Path, version: int = java.OLDEST, cores: int | None = None
) -> dict[str, str]:
    """The settings of Spark, unless the caller gives others.

    `run` is the directory of this session, `version` that of Java, and `cores` how many the session
    has if it runs on this machine.
    """
    flags = {
        "log4j2.configurationFile": _LOGGING.as_uri(),
        # Otherwise it leaves files where it was started, and where others look for theirs.
        "derby.system.home": str(home / "metastore"),
        "java.io.tmpdir": str(run),
    }
    flags |= {
        # Arrow checks each access to its memory, which Spark does itself. Without that, and with
        # the collector above, a stream of rows was about 1.4 times as quick.
        "arrow.enable_unsafe_memory_access": "true",
        "arrow.enable_null_check_for_get": "false",
    }
    if version < _VFORK_DEPRECATED:
        # Spark starts programs, such as `chmod`, for every checkpoint: this is the quickest way.
        flags["jdk.lang.Process.launchMechanism"] = "VFORK"
    return {
        # The default options, so that the caller's own are added to them.
        "spark.driver.defaultJavaOptions": " ".join(
            f'"-D{name}={value}"' for name, value in flags.items()
        ),
        # Batches go to and from Python's workers without the detour over TCP: the largest gain.
        "spark.python.unix.domain.socket.enabled": "true",
        # Executors elsewhere do not have the directory of this session, but the system's.
        "spark.python.unix.domain.socket.dir": tempfile.gettempdir(),
        # Checkpoints are written several times in each micro-batch. Without this, every file gets
        # a second one with its checksum. (fs.file.impl would say the same, but breaks RocksDB.)
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
        # State on disk instead of in Java's memory: it may be larger, and nothing pauses for it.
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        # Few words, and no port that nobody asked for.
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",
        **({} if cores is None else _local_settings(cores, run)),
    }


def _local_settings(cores: int, run: Path) -> dict[str, str]:
    return {
        "spark.local.dir": str(run),
        "spark.python.unix.domain.socket.dir": str(_socket_directory(run)),
        # Spark means 200, for a cluster. Each is a database of its own for every stateful operator,
        # and 200 of them on two cores make each micro-batch take many seconds.
        "spark.sql.shuffle.partitions": str(cores),
        # Without it, workers take their leave with tracebacks.
        "spark.python.daemon.module": "headwater.spark.daemon",
    }


def _cores(master: str) -> int | None:
    """The number of cores of a session on this machine; None if it runs on others."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,.*)?\])?", master)
    if found is None:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)


def _set_environment(master: str, home: Path) -> None:
    """Set the variables that Spark reads, unless they are set already."""
    # Otherwise workers run on whatever `python3` is, where this package is not.
    if _cores(master) is None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    else:
        python.prepare(home)
    if master.startswith("local"):
        # Nobody else has to reach this session, its web pages included.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _given(conf: Mapping[str, object], more: Mapping[str, object]) -> dict[str, str]:
    # A name with a dot is one of Spark's as it stands: session(**{"spark.ui.enabled": "true"}).
    named = {name if "." in name else name.replace("_", "."): more[name] for name in more}
    every = {**conf, **named}
    return {
        name if name.startswith("spark.") else f"spark.{name}": _written(value)
        for name, value in every.items()
    }


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# Directories


def _home(directory: Path | str | None) -> Path:
    if directory is None:
        directory = Path(os.environ.get(DIRECTORY_VARIABLE) or _temporary(), "spark")
    home = Path(directory).resolve()
    home.mkdir(parents=True, exist_ok=True)
    return home


def _temporary() -> Path:
    """A place of this user among the temporary files of all."""
    place = Path(tempfile.gettempdir(), f"headwater-{os.getuid()}")
    place.mkdir(mode=0o700, exist_ok=True)
    if place.is_symlink() or place.stat().st_uid != os.getuid():
        raise HeadwaterError(
            f"{place} belongs to someone else; say with {DIRECTORY_VARIABLE} where Spark may write"
        )
    return place


def _run_of(home: Path) -> Path:
    """A new directory for this session. Those of sessions that were killed are removed."""
    for left in home.glob("run-*"):
        with contextlib.suppress(OSError), (left / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # or its session is alive
            shutil.rmtree(left, ignore_errors=True)
    run = Path(tempfile.mkdtemp(prefix="run-", dir=home))
    # Never closed: it is held as long as this process lives, however that ends.
    fcntl.flock(os.open(run / _LOCK, os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)
    return run


def _socket_directory(run: Path) -> Path:
    short = len(os.fsencode(run)) <= _SOCKET_PATH_BYTES
    return run if short else Path(tempfile.gettempdir())
