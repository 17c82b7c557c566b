"""What the tests of the codecs share: how bytes are cut, and how time and memory are bounded."""

import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle

from hypothesis import strategies as st

from headwater.commands import Close, Command, Respond
from headwater.protocols.base import ClientSession, Event, Session
from tests.protocols.vectors import merged_deliveries, merged_runs, shown, told

#: Sizes of the pieces that a stream arrives in, over and over.
sizes = st.lists(st.integers(1, 40), min_size=1, max_size=8)
payloads = st.lists(st.binary(max_size=40) | st.just(b"same size"), min_size=1, max_size=40)


def pieces(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    position = 0
    for size in cycle(sizes):
        if position >= len(data):
            return
        yield data[position : position + size]
        position += size


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
