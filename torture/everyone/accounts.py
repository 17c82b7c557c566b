"""What clients know, each thing with the moment from which on they know it.

A moment is whatever `now` counts: operations on the disk (disk/shim.py), or nothing at all.
"""

import base64
import hashlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

#: Durable subscriber and consumers, by the names that accounts have of them.
DURABLE, PRISM, BMTP = "durable", "prism", "bmtp"


@dataclass
class Batch:
    """Rows that are to be in the log together and once."""

    query: str
    number: int
    keys: tuple[bytes, ...]
    #: Topics and payloads.
    values: tuple[tuple[str, bytes], ...]
    begun_at: int
    committed_at: int | None = None


@dataclass
class Accounts:
    now: Callable[[], int] = lambda: 0
    sent: set[bytes] = field(default_factory=set)
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    #: The broker has said that these are not stored.
    refused: set[bytes] = field(default_factory=set)
    batches: list[Batch] = field(default_factory=list)
    received: dict[str, dict[bytes, int]] = field(default_factory=lambda: defaultdict(dict))
    #: Since when a subscriber or a consumer has been promised what comes.
    subscribed: dict[str, int] = field(default_factory=dict)
    #: What came and was never sent, or not so.
    foreign: list[bytes] = field(default_factory=list)

    def payload(self, key: bytes, size: int) -> bytes:
        """It tells what it should be; everyone can see whether it is whole."""
        self.sent.add(key)
        return b"%b %d %b" % (key, size, _filler(key, size))

    def acknowledge(self, *keys: bytes) -> None:
        now = self.now()
        for key in keys:
            self.acknowledged.setdefault(key, now)

    def receive(self, name: str, payload: bytes) -> None:
        key = key_of(payload)
        if key is None or key not in self.sent:
            self.foreign.append(payload[:100])
        else:
            self.received[name].setdefault(key, self.now())

    def summary(self) -> str:
        done = sum(batch.committed_at is not None for batch in self.batches)
        return f"acknowledged {len(self.acknowledged):,}, batches committed {done:,}"

    def subscribe(self, name: str) -> None:
        self.subscribed.setdefault(name, self.now())


def key_of(payload: bytes) -> bytes | None:
    """The key of a payload that is whole."""
    key, _, rest = payload.partition(b" ")
    size, _, filler = rest.partition(b" ")
    whole = size.isdigit() and filler == _filler(key, int(size))
    return key if whole else None


def _filler(key: bytes, size: int) -> bytes:
    """Text, because CrystalConnector carries nothing else, that cannot be compressed much."""
    return base64.b64encode(hashlib.shake_128(key).digest(size))[:size]
