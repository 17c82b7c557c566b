"""One port for all: which protocol a client speaks is told by its first bytes.

    "PSM"                   PSMB
    0x1? "BM"               BMTP's CONN
    "GET " path             Prism Notify if the path is one of its own, otherwise CrystalConnector
    anything else           BPSP, whose frames begin with a length and an opcode

No BPSP frame begins like one of the others: its third byte is an opcode, and those are small.
"""

from collections.abc import Callable, Iterator, Mapping

from headwater.commands import Close, Command, Subscription
from headwater.errors import HeadwaterError, Refusal
from headwater.message import Batch
from headwater.protocols import bmtp, bpsp, crystal, prism, psmb
from headwater.protocols.base import Session, Terms

# A path that has no end within so many bytes is none of Prism's.
LONGEST_PATH = 256


def recognise(data: bytes) -> str | None:
    """The protocol's name, or None while the bytes do not tell."""
    if len(data) < 3:
        return None
    if data.startswith(b"PSM"):
        return psmb.NAME
    if data[0] >> 4 == 1 and data[1:3] == b"BM":
        return bmtp.NAME
    if not data.startswith(b"GET"):
        return bpsp.NAME
    target = data[4 : 4 + LONGEST_PATH]
    ends = [end for end in (target.find(b" "), target.find(b"?")) if end >= 0]
    if not ends:
        return None if len(target) < LONGEST_PATH else crystal.NAME
    return prism.NAME if target[: min(ends)].decode("latin-1") in prism.PATHS else crystal.NAME


class Recognition(Session):
    """Waits for the first bytes, then lets the right session go on."""

    def __init__(self, terms: Terms, sessions: Mapping[str, Callable[[Terms], Session]]) -> None:
        self._terms = terms
        self._sessions = sessions
        self._data = b""

    def receive(self, data: bytes) -> Iterator[Command]:
        self._data += data
        name = recognise(self._data)
        if name is None:
            return
        if name not in self._sessions:
            yield Close(b"", f"{name} is not served here")
            return
        self.successor = self._sessions[name](self._terms), self._data

    def encode(self, batch: Batch, subscriptions: tuple[Subscription, ...]) -> list[bytes]:
        return []

    def refuse(self, command: Command, error: Refusal) -> Command | None:
        return None

    def farewell(self, error: HeadwaterError) -> bytes:
        return b""
