"""What the tests of the codecs share: the terms of a connection, how bytes are cut and broken, and
how time and memory are bounded."""

import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle

from hypothesis import strategies as st

from headwater.commands import Close, Command, Respond
from headwater.protocols.base import ClientSession, Event, Session, Terms
from tests.protocols.vectors import PEER, merged_deliveries, merged_runs, shown, told

#: Small limits, which are soon reached.
LIMIT = 1000
TERMS = Terms(PEER, message_bytes=LIMIT, topic_bytes=64)

#: Sizes of the pieces that a stream arrives in, over and over.
sizes = st.lists(st.integers(1, 40), min_size=1, max_size=8)
#: A piece that is larger than any stream.
WHOLE = 1 << 40
payloads = st.lists(st.binary(max_size=40) | st.just(b"same size"), min_size=1, max_size=40)


def pieces(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    position = 0
    for size in cycle(sizes):
        if position >= len(data):
            return
        yield data[position : position + size]
        position += size


def commands_of(session: Session, data: bytes, cut: Iterable[int] = (WHOLE,)) -> list[Command]:
    """What a session makes of a stream; runs that were cut are put together again."""
    found = (command for piece in pieces(data, cut) for command in session.receive(piece))
    return list(merged_runs(found))


def broken(frame: bytes) -> st.SearchStrategy[bytes]:
    """A frame that is right, cut short, or has one wrong byte."""
    return st.one_of(
        st.just(frame),
        st.integers(0, len(frame)).map(lambda end: frame[:end]),
        st.tuples(st.integers(0, len(frame) - 1), st.integers(0, 255)).map(
            lambda change: frame[: change[0]] + bytes([change[1]]) + frame[change[0] + 1 :]
        ),
    )


def outcome(session: Session, stream: Iterable[bytes]) -> tuple[list[bytes], bytes, bool]:
    """What a broker that agrees to everything makes of a stream: commands, answers, the end."""
    commands: list[Command] = []
    answers = bytearray()
    closed = False
    for piece in stream:
        for command in session.receive(piece):
            assert not closed, f"a command after the end: {command}"
            if not isinstance(command, Respond | Close):
                commands.append(command)
            answers += getattr(command, "answer", b"")
            closed = isinstance(command, Close)
    return [told(command) for command in merged_runs(commands)], bytes(answers), closed


def events(session: ClientSession, stream: Iterable[bytes]) -> list[Event]:
    """What a client makes of a stream; deliveries that were cut are put together again."""
    found = [event for piece in stream for event in session.receive(piece)]
    return list(merged_deliveries(found))


def shown_events(session: ClientSession, stream: Iterable[bytes]) -> list[bytes]:
    return [shown(event) for event in events(session, stream)]


def shown_unmasked(session: ClientSession, stream: Iterable[bytes]) -> list[bytes]:
    """The same for a client on WebSocket, whose answers to pings are masked with random bytes."""
    found = shown_events(session, stream)
    return [b"ping" if each.startswith(b"ping") else each for each in found]


def seconds(work: Callable[[], object]) -> float:
    """The CPU time of the best of three runs: other processes share the machine."""
    times = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def memory_kept(work: Callable[[], object]) -> int:
    """How many bytes stay in memory while what `work` returns is alive."""
    tracemalloc.start()
    try:
        kept = work()
        size, _ = tracemalloc.get_traced_memory()
        del kept
        return size
    finally:
        tracemalloc.stop()
