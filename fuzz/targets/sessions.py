"""The protocols, before and after their handshakes, and the port for all of them.

An input is given to a connection as one read or in pieces, which its own bytes decide. Clients of
all protocols are subscribed to everything meanwhile, so whatever is published is written in five
ways, and read again by the clients' codecs.
"""

import asyncio
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from fuzz import branches
from fuzz.stand import Stand
from fuzz.targets.audience import HANDSHAKES, Audience
from fuzz.targets.base import Target, Violation
from fuzz.targets.watching import Watched
from headwater.errors import Code, Refusal
from headwater.protocols.base import Session
from tests.protocols.vectors import Send, Vector, files

#: A connection that goes on for longer than this will never come to its end. (Time of the
#: processor, of which a loop that has nothing to do but to wait takes all.)
PATIENCE_SECONDS = 30.0
#: So many vectors go before the others of a protocol until a client is known, if not one.
IN_HANDSHAKE = {"crystal": 2}
#: Each so many inputs, what was published becomes durable before its publisher leaves.
SETTLED = 64


class SessionTarget(Target):
    """A listener, and what every connection to it says first."""

    takes_turns = True

    def __init__(self, name: str, listener: str, protocols: tuple[str, ...], handshake: bytes):
        self.name = name
        self._listener = listener
        self._protocols = protocols
        self._handshake = handshake
        self._watched: Watched | None = None
        self._stand: Stand | None = None
        self._audience: Audience | None = None
        self._count = 0

    def seeds(self) -> list[bytes]:
        vectors = [
            vector
            for file in files()
            if file.protocol in self._protocols
            for vector in file.vectors
        ]
        return [self._conversation(vector) for vector in vectors]

    def _conversation(self, vector: Vector) -> bytes:
        """What the client of a vector says, with a handshake that is good for this broker, or
        without one if that is done already."""
        steps = (*vector.introduction, *vector.steps)
        first = b""
        if vector.introduction:
            known = min(IN_HANDSHAKE.get(vector.protocol, 1), len(vector.introduction))
            steps = steps[known:]
            first = b"" if self._handshake else HANDSHAKES[vector.protocol]
        said = (step.what.data for step in steps if isinstance(step.what, Send))
        return first + b"".join(said)

    def words(self) -> list[bytes]:
        modules = [f"headwater.protocols.{name}" for name in self._protocols]
        return branches.words(*modules, "headwater.protocols.websocket", "headwater.topics")

    async def open(self, directory: Path) -> None:
        self._stand = await Stand.start(directory, self._watch)
        self._audience = Audience(self._stand)
        await asyncio.sleep(0)

    async def close(self) -> None:
        assert self._stand is not None and self._audience is not None
        self._audience.leave()
        await self._stand.stop()

    def _watch(self, session: Session) -> Session:
        self._watched = Watched(session)
        return session

    async def run(self, data: bytes) -> None:
        assert self._stand is not None and self._audience is not None
        choice = zlib.crc32(data)
        connection, transport = self._stand.connect(self._listener)
        watched, self._watched = self._watched, None
        assert watched is not None
        if self._handshake:
            connection.data_received(self._handshake)
        for piece in pieces(data, choice):
            connection.data_received(piece)
        if watched.busy:
            deadline = time.process_time() + PATIENCE_SECONDS
            while watched.busy and not transport.ended:
                if time.process_time() > deadline:
                    raise Violation("the commands of one input do not come to an end")
                await asyncio.sleep(0)
        self._count += 1
        if self._count % SETTLED == 0:
            await self._stand.settle()
        watched.check_end()
        if choice & 0x70000 == 0:
            connection.dismiss(Refusal(Code.UNAVAILABLE, "the broker is shutting down"))
        transport.close()
        await asyncio.sleep(0)
        self._audience.answer()


def pieces(data: bytes, choice: int) -> Iterator[bytes]:
    """The reads that bring an input: mostly one, else two, or a byte at a time."""
    kind = choice & 0xF
    if kind < 10 or len(data) < 2:
        if data:  # a socket never brings nothing
            yield data
    elif kind < 14 or len(data) > 200:
        cut = 1 + (choice >> 4) % (len(data) - 1)
        yield data[:cut]
        yield data[cut:]
    else:
        for at in range(len(data)):
            yield data[at : at + 1]


def session_targets() -> list[Target]:
    found: list[Target] = []
    for name, handshake in HANDSHAKES.items():
        found.append(SessionTarget(name, name, (name,), b""))
        found.append(SessionTarget(f"{name}-after", name, (name,), handshake))
    found.append(SessionTarget("any", "any", tuple(HANDSHAKES), b""))
    return found
