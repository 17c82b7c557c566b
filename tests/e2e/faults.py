"""Faults inside a broker's process, for tests: what no client, signal or disk can bring about.

`injected(directory, code)` gives the settings of a broker that runs the code when Python starts, in
a module that Python imports by itself. The broker is the real one but for what the code replaces.
"""

import os
from pathlib import Path

PLACE = "faults"


def injected(directory: Path, code: str) -> dict[str, str]:
    place = directory / PLACE
    place.mkdir()
    (place / "sitecustomize.py").write_text(code)
    known = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(place), *([known] if known else [])])}


class Switch:
    """Turns a fault on and off while the broker runs, if its code asks `switched_on()`: a file
    beside the code."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / PLACE / "switch"

    def on(self) -> None:
        self._file.touch()

    def off(self) -> None:
        self._file.unlink(missing_ok=True)


_SWITCHED_ON = """
from pathlib import Path

def switched_on(switch=Path(__file__).with_name("switch")):
    return switch.exists()
"""


#: A thread of the log ends when it meets a message that says so.
DYING_THREAD = """
from headwater.log.embedded import syncer, writer

def dying(method):
    def act(self, batches):
        if any(b"die" in payload for batch in batches for payload in batch.run.payloads):
            raise RuntimeError("a bug")
        return method(self, batches)
    return act

{of} = dying({of})

# A slow machine has the time to see it refuse.
from headwater.server import server
server.FAILED_SECONDS = 3600.0
"""

#: A thread of the log ends when the switch is on: before a piece of its work, or after it.
SWITCHED_DEATH = f"""{_SWITCHED_ON}
from headwater.log.embedded import state, store, syncer, writer

def dying(method):
    def act(*arguments):
        on = switched_on()
        result = method(*arguments) if {{after}} or not on else None
        if on:
            raise RuntimeError("a bug")
        return result
    return act

{{of}} = dying({{of}})
"""

#: Reads of the log fail while the switch is on, as those of a disk do that has a bad moment.
READ_ERRORS = f"""{_SWITCHED_ON}
import errno, os
from headwater.log.embedded.file import LogFile

def failing(self, position, length, read=LogFile.read):
    if switched_on():
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return read(self, position, length)

LogFile.read = failing
"""

#: Flight ends as soon as it serves.
DYING_FLIGHT = """
from headwater.flight.server import FlightServer
FlightServer.wait = lambda self: None
"""

#: SIGTERM comes when the first port is open, and the others never are.
EARLY_TERM = """
import asyncio, os, signal
from headwater.transport.tcp import Listener
serve = Listener.serve

async def served(self):
    await serve(self)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(3600)

Listener.serve = served
"""

#: No fault, but what makes others find more: each run of a batch is appended by itself.
SMALL_PIECES = """
from headwater.flight import appending
appending.PIECE_BYTES = 1
"""
