"""What a person sees while a pipeline runs, on a real terminal; and what a program gets instead."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.pipeline.conftest import Command
from tests.pipeline.test_commands import BRONZE, Feeder, feeder, make_project

__all__ = ["feeder"]

RUN = [sys.executable, "-m", "headwater", "pipeline", "run"]
COPY = """
@dp.table
def copy():
    return spark.readStream.table("bronze").select("offset")
"""
BAD = """
@dp.materialized_view
def bad():
    return spark.sql("SELECT raise_error('boom') FROM bronze")
"""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
#: What a query says that Spark has no process for on a busy machine. It begins again by itself.
_AGAIN = re.compile(r".*Python worker failed to connect back.*; again in .*\n")


class Terminal:
    """A terminal of 120 columns in which a command runs, as if a person had typed it."""

    def __init__(self, process: "subprocess.Popen[bytes]", end: int) -> None:
        self.process, self._end, self._seen = process, end, b""

    def type(self, keys: bytes) -> None:
        os.write(self._end, keys)

    @property
    def text(self) -> str:
        return _ESCAPES.sub("", self._seen.decode(errors="replace"))

    @property
    def picture(self) -> str:
        """What was drawn last."""
        return self.text[self.text.rfind("shop  ") :]

    def until(self, pattern: str, seconds: float = 120.0) -> str:
        """Wait until the last picture has something."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.picture):
            assert time.monotonic() < deadline, self.text[-2000:]
            self._read(0.2)
        return self.picture

    def ended(self, seconds: float = 90.0) -> int:
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text[-2000:]
            self._read(0.2)
        while self._read(0.2):
            pass
        return self.process.returncode

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._end], [], [], seconds)
        if not ready:
            return False
        with contextlib.suppress(OSError):  # nobody is at the other end any more
            new = os.read(self._end, 65536)
            self._seen += new
            return bool(new)
        return False


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def terminal(*arguments: str, cwd: Path) -> Iterator[Terminal]:
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    with subprocess.Popen(
        [*RUN, *arguments],
        cwd=cwd,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
        preexec_fn=_take_terminal,
    ) as process:
        os.close(theirs)
        try:
            yield Terminal(process, mine)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            os.close(mine)


def line_of(picture: str, table: str) -> str:
    (found,) = [line for line in picture.splitlines() if line.startswith(f"{table} ")]
    return found.rstrip()


@pytest.mark.spark_process
@pytest.mark.timeout(600)
def test_a_bar_per_table_until_control_c(tmp_path: Path, feeder: Feeder) -> None:
    project = make_project(tmp_path / "shop", feeder.servers, BRONZE + COPY)
    feeder.append(1234)
    with terminal(cwd=project) as screen:
        screen.until(r"\nbronze +running +━{16} +1,234 +0 ")
        picture = screen.until(r"\ncopy +running +━{16} +1,234 +0 ")
        assert re.match(r"shop  continuous, \d+ s, log 0 to 1,234", picture)
        feeder.append(2000)
        screen.until(r"\ncopy +running +━{16} +3,234 +0 ")
        screen.type(b"\x03")
        assert screen.ended() == 0, screen.text[-2000:]
    # Not the word alone: on a busy machine a query may say why it had to begin again.
    assert "Traceback" not in screen.text and "headwater: error" not in screen.text
    for table in ("bronze", "copy"):
        assert re.match(
            rf"{table} +running +━+ +3,234 +0 +[\d,]+ +\d+[sm] ago", line_of(screen.picture, table)
        )


@pytest.mark.spark_process
@pytest.mark.timeout(600)
def test_what_fails_is_in_the_picture(tmp_path: Path, feeder: Feeder) -> None:
    project = make_project(tmp_path / "shop", feeder.servers, BRONZE + BAD)
    feeder.append(10)
    with terminal("--once", cwd=project) as screen:
        assert screen.ended(300) == 1
    assert re.match(r"bronze +done +━{16} +10 +0 ", line_of(screen.picture, "bronze"))
    assert re.match(r"bad +failed ", line_of(screen.picture, "bad"))
    assert "boom" in screen.picture and "Traceback" not in screen.text
    assert "some tables are not current: `headwater pipeline status` says why" in screen.text


@pytest.mark.timeout(400)
def test_a_pipe_gets_lines_of_json(tmp_path: Path, feeder: Feeder, warm: Command) -> None:
    project = make_project(tmp_path / "shop", feeder.servers, BRONZE + COPY)
    feeder.append(1234)
    ran = warm("run", "--once", cwd=project)
    assert ran.returncode == 0, ran.stderr
    states = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {each["name"] for state in states for each in state["tables"]} == {"bronze", "copy"}
    assert states[0]["tables"][0]["state"] in ("waiting", "running")
    last = {each["name"]: (each["state"], each["rows"]) for each in states[-1]["tables"]}
    assert last == {"bronze": ("done", 1234), "copy": ("done", 1234)}
    assert states[-1]["log"] == {"start": 0, "end": 1234}
    assert "\x1b" not in ran.stdout and not _AGAIN.sub("", ran.stderr)
    lines = ran.stdout.splitlines()
    assert len(set(lines)) == len(lines)  # nothing is said twice
