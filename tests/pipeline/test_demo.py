"""`headwater demo`, all of it: a broker, clients of five protocols, a pipeline on real Spark."""

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headwater.demo.broker import LOG_FILE
from tests.e2e.process import eventually
from tests.pipeline.scripts import run_reading

#: As those of tests/demo, and not beside them: they look for free ports.
pytestmark = pytest.mark.xdist_group("spark")

#: So long it may take until everything can be looked at, where others use the machine as well.
PATIENCE = 240.0
#: It would never end by itself, and gives each of its processes ten seconds.
STOP_SECONDS = 120.0
SILVER = ("silver_sensors", "silver_orders", "silver_chat", "silver_game", "silver_meters")
TABLES = ("bronze", *SILVER, "quarantine", "traffic")
PROTOCOLS = {"psmb", "bmtp", "prism", "bpsp", "crystal"}
#: Nothing of whoever runs the tests.
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")}


class Demo:
    """The command, and what it has said so far."""

    def __init__(self, place: Path, program: tuple[str, ...]) -> None:
        self.place = place
        self.tables = place / "pipeline" / "storage" / "tables"
        self.process = subprocess.Popen(
            [sys.executable, *program, "demo", str(place)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self._said: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said.put(line.rstrip("\n"))

    def said_until(self, words: str, seconds: float) -> list[str]:
        """What it says up to a line with these words."""
        lines: list[str] = []
        for _ in eventually(seconds):
            ended = self.process.poll() is not None
            with contextlib.suppress(queue.Empty):
                while not lines or words not in lines[-1]:
                    lines.append(self._said.get_nowait())
                return lines
            assert not ended, f"it did not say {words}, but: {lines} {self.end()}"
        raise AssertionError

    def count(self, table: str) -> int:
        with contextlib.suppress(Exception):  # it is not there yet
            return int(DeltaTable(str(self.tables / table)).to_pyarrow_dataset().count_rows())
        return 0

    def protocols(self) -> set[str]:
        """Those that are in bronze. It has a query of its own, so silver may be ahead of it."""
        bronze = DeltaTable(str(self.tables / "bronze")).to_pyarrow_table(columns=["protocol"])
        return set(bronze.column("protocol").to_pylist())

    def stop(self, number: signal.Signals) -> tuple[int, str]:
        """Returns the exit code, and what it said to standard error."""
        self.process.send_signal(number)
        code = self.process.wait(STOP_SECONDS)
        return code, self.end()

    def end(self) -> str:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None and self.process.stderr is not None
        errors = "" if self.process.stderr.closed else self.process.stderr.read()
        self.process.stdout.close()
        self.process.stderr.close()
        return errors


@contextmanager
def demo(place: Path, program: tuple[str, ...] = ("-m", "headwater")) -> Iterator[Demo]:
    made = Demo(place, program)
    try:
        yield made
    finally:
        made.end()


def processes_of(place: Path) -> list[int]:
    """All processes that were told of a directory, by argument or environment: Java as well."""
    wanted, found = str(place).encode(), []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            told = (each / "cmdline").read_bytes() + (each / "environ").read_bytes()
            if wanted in told and int(each.name) != os.getpid():
                found.append(int(each.name))
    return found


def nothing_is_left_of(place: Path) -> None:
    """Java and its workers were killed, or have lost those they worked for: that takes a moment."""
    for _ in eventually(60):
        if not processes_of(place):
            return


def shell(command: str, well: Callable[[str], bool] = bool, seconds: float = 0.0) -> str:
    """A line as it was printed, in a shell that knows nothing else. Returns what it says; if that
    is not well, it is called again for so long."""
    until = time.monotonic() + seconds
    while True:
        done = run_reading(["bash", "-c", command], timeout=120, env=ENVIRONMENT)
        if done.returncode == 0 and well(done.stdout):
            return done.stdout
        assert time.monotonic() < until, f"{command}: {done.stdout}{done.stderr}"


@pytest.mark.spark_process
@pytest.mark.timeout(1200)
def test_everything_can_be_looked_at_and_stops(tmp_path: Path) -> None:
    with demo(tmp_path / "demo") as shown:
        first = shown.said_until("Spark is starting", PATIENCE)
        then = shown.said_until("Ctrl-C stops everything.", PATIENCE)
        for _ in eventually(PATIENCE):
            if all(shown.count(table) for table in TABLES) and shown.protocols() >= PROTOCOLS:
                break
        assert _watched(first).startswith("sensors/")
        _look_at_tables(then)
        _look_at_console(first)
        running = processes_of(shown.place)
        assert len(running) >= 4  # the demo, the broker, the pipeline and Java: they are found
        assert shown.stop(signal.SIGINT) == (0, "")
        nothing_is_left_of(shown.place)


def _watched(lines: list[str]) -> str:
    """The first line of what the printed `headwater sub` shows."""
    (command,) = [line.strip() for line in lines if " sub bpsp://" in line]
    return shell(f"{command} --count 1")


def _look_at_tables(lines: list[str]) -> None:
    rows, status, audit = [line.strip() for line in lines if line.startswith("  ")]
    assert "celsius" in shell(rows)
    # A query that is started again has an error until it has written; one that failed stays so.
    assert "silver_meters" in shell(status, lambda said: "failed" not in said, PATIENCE)
    # A micro-batch fills its tables one after the other, so what is missing may be on its way. What
    # is lost stays missing.
    shell(audit, lambda said: said.endswith("gaps 0, duplicates 0\n"), PATIENCE)


def _look_at_console(lines: list[str]) -> None:
    (address,) = re.findall(r"console +(http://localhost:\d+)", "\n".join(lines))
    for _ in eventually(60):
        with urllib.request.urlopen(f"{address}/api/v1/pipelines", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        if found["items"]:  # it reports once a second, as long as nothing keeps it from that
            break
    (report,) = found["items"]
    assert report["pipeline"] == "pipeline"
    assert set(TABLES) <= {table["name"] for table in report["state"]["tables"]}


@pytest.mark.spark_process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["the broker starts", "Java starts"])
def test_it_stops_at_any_moment(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    place = tmp_path / "demo"
    with demo(place) as shown:
        if moment == "Java starts":
            shown.said_until("Spark is starting", PATIENCE)
            for _ in eventually(120):
                if any(_is_java(pid) for pid in processes_of(place)):
                    break
        else:
            for _ in eventually(60):
                if (place / LOG_FILE).exists():
                    break
        assert shown.stop(number) == (0, "")
    nothing_is_left_of(place)


def _is_java(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"java" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    return False


#: A demo that waits for its processes much longer than this test waits for the demo.
PATIENT = """
from headwater.cli import main
from headwater.demo import broker
assert broker._STOP_SECONDS
broker._STOP_SECONDS = 3600.0
main()
"""


@pytest.mark.spark_process
@pytest.mark.timeout(600)
def test_whoever_presses_ctrl_c_again_need_not_wait(tmp_path: Path) -> None:
    """The pipeline does not listen any more. It is killed, and nothing stays behind."""
    place = tmp_path / "demo"
    with demo(place, ("-c", PATIENT)) as shown:
        shown.said_until("Spark is starting", PATIENCE)
        for _ in eventually(120):
            if any(_is_java(pid) for pid in processes_of(place)):
                break
        (driver,) = (pid for pid in processes_of(place) if _is_driver(pid))
        freeze(driver)
        shown.process.send_signal(signal.SIGINT)
        for _ in eventually(60):
            if _was_told_to_end(driver):
                break
        assert shown.process.poll() is None  # it waits for the pipeline
        assert shown.stop(signal.SIGINT) == (0, "")
    nothing_is_left_of(place)


def freeze(pid: int) -> None:
    """SIGSTOP takes its time, and a SIGTERM that comes before it is done would be heard first."""
    os.kill(pid, signal.SIGSTOP)
    for _ in eventually(60):
        with contextlib.suppress(OSError):  # a thread has ended between the two looks
            stats = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/stat")]
            if all(stat.rpartition(") ")[2].startswith("T") for stat in stats):
                return


def _was_told_to_end(pid: int) -> bool:
    """Whether SIGTERM waits for a process that is frozen."""
    status = Path(f"/proc/{pid}/status").read_text()
    (pending,) = re.findall(r"^ShdPnd:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(int(pending, 16) >> (signal.SIGTERM - 1) & 1)


def _is_driver(pid: int) -> bool:
    """The pipeline itself: what it starts looks like it as well, until it is another program."""
    with contextlib.suppress(OSError):
        told = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"\0pipeline\0run\0" in told and os.getsid(pid) == pid
    return False


def test_without_a_directory_nothing_stays_on_the_disk(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headwater", "demo", "--no-pipeline", "--seconds", "2"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT | {"TMPDIR": str(tmp_path)},
        timeout=110,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"All files are in {tmp_path}/headwater-demo-" in done.stdout
    assert not list(tmp_path.iterdir())
