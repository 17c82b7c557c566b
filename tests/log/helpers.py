"""What the tests of the log share: making batches, and comparing what comes back."""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

from headwater.log.embedded.reader import LogReader
from headwater.log.embedded.store import LogStore
from headwater.message import Batch, Headers, Run

START_TIME = 1_700_000_000_000_000


class Message(NamedTuple):
    """One message with all that is stored of it, to be compared."""

    offset: int
    timestamp: int
    topic: str
    protocol: str
    publisher: str
    headers: Headers
    payload: bytes


def messages(batches: Iterable[Batch]) -> list[Message]:
    return [
        Message(offset, b.timestamp, r.topic, r.protocol, r.publisher, r.headers, payload)
        for b in batches
        for r in [b.run]
        for offset, payload in enumerate(r.payloads, b.offset)
    ]


def everything(topic: str) -> bool:
    return True


def make_run(topic: str, *payloads: bytes, headers: Headers = ()) -> Run:
    return Run(topic, payloads, protocol="psmb", publisher="pat", headers=headers)


def place(runs: Sequence[Run], offset: int, timestamp: int) -> list[Batch]:
    """The runs one behind the other, a microsecond apart."""
    batches = []
    for number, run in enumerate(runs):
        batches.append(Batch(offset, timestamp + number, run))
        offset = batches[-1].end
    return batches


def append(store: LogStore, *runs: Run) -> list[Batch]:
    """Append the runs as one frame."""
    batches = place(runs, store.end, max(store.last_timestamp + 10, START_TIME))
    store.append(batches)
    return batches


def fill(store: LogStore, frames: int, size: int = 50) -> list[Message]:
    """Append frames of three messages with different topics, and sync each; all of them."""
    written = []
    for number in range(frames):
        first = make_run(f"t/{number % 4}", b"%04d" % number + b"." * size, b"")
        second = make_run(f"u/{number % 3}", os.urandom(size), headers=(("n", str(number)),))
        written += messages(append(store, first, second))
        store.sync()
    return written


def read_batches(
    log: LogReader,
    offset: int = 0,
    end: int | None = None,
    wanted: Callable[[str], bool] = everything,
    max_bytes: int = 1 << 20,
) -> Iterator[Batch]:
    """Everything wanted, in as many reads as it takes."""
    end = log.end if end is None else end
    while offset < end:
        batches, following = log.read(offset, wanted, max_bytes, end)
        yield from batches
        assert following > offset
        offset = following


def contents(log: LogReader, offset: int = 0, end: int | None = None) -> list[Message]:
    return messages(read_batches(log, offset, end))


def rest(seconds: float) -> None:
    """A pause that is none."""


def seal_all(store: LogStore) -> None:
    for segment in store.unsealed():
        store.seal(segment, rest)


def sealed_log(directory: Path, frames: int = 6) -> list[Message]:
    """A closed log of one sealed segment and an active one; the messages of the former."""
    store = LogStore.open(directory, segment_bytes=1 << 30)
    written = fill(store, frames)
    store.close()
    store = LogStore.open(directory, segment_bytes=1)  # so that the next frame begins a new one
    fill(store, 1)
    seal_all(store)
    store.close()
    return written


def never_noted(directory: Path) -> None:
    """As if nothing of the log had ever been durable: only its identity is known."""
    lock = directory / "LOCK"
    lock.write_bytes(lock.read_bytes()[:9])


def identity_in(directory: Path) -> int:
    return int((directory / "LOCK").read_bytes()[:8], 16)


@contextmanager
def memory_directory() -> Iterator[Path]:
    """A directory in memory, where there is such a thing: a sync costs nothing there."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="headwater-", dir=parent) as name:
        yield Path(name)


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Change one bit of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        value = file.read(1)[0]
        file.seek(position)
        file.write(bytes([value ^ (1 << bit)]))


topics = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=8)
short = st.text(st.characters(codec="utf-8"), max_size=6)
payloads = st.lists(
    st.one_of(st.binary(max_size=20), st.integers(0, 600).map(bytes)),
    min_size=1,
    max_size=6,
)
headers = st.lists(st.tuples(short, short), max_size=3).map(tuple)


@st.composite
def runs(draw: st.DrawFn, topic: st.SearchStrategy[str] = topics) -> Run:
    return Run(
        draw(topic),
        draw(payloads),
        protocol=draw(st.sampled_from(["psmb", "bpsp", ""])),
        publisher=draw(short),
        headers=draw(headers),
    )
