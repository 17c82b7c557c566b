"""Faults inside a broker's process, for tests: what no client, signal or disk can bring about.

`injected(directory, code)` gives the settings of a broker that runs the code when Python starts, in
a module that Python imports by itself. The broker is the real one but for what the code replaces.
"""

import os
from pathlib import Path


def injected(directory: Path, code: str) -> dict[str, str]:
    place = directory / "faults"
    place.mkdir()
    (place / "sitecustomize.py").write_text(code)
    known = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(place), *([known] if known else [])])}


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
