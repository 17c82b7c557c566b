"""A control socket that is served by a thread, for clients that block."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from headwater.control.protocol import MOST_CONNECTIONS, UNFINISHED_SECONDS
from headwater.control.server import Control, Handler

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
PATIENCE = 60.0


@contextmanager
def serving(
    directory: Path,
    handlers: Mapping[str, Handler],
    loop_factory: LoopFactory | None = None,
    *,
    connections: int = MOST_CONNECTIONS,
    unfinished_seconds: float = UNFINISHED_SECONDS,
) -> Iterator[Control]:
    directory.mkdir(parents=True, exist_ok=True)
    control = Control(handlers, connections=connections, unfinished_seconds=unfinished_seconds)
    ready, failure = threading.Event(), list[BaseException]()
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        stop = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stop))
        try:
            await control.start(directory)
            ready.set()
            await stop.wait()
            await control.stop()
        except BaseException as error:
            failure.append(error)
            ready.set()

    def run() -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        if failure:
            raise failure[0]
        yield control
    finally:
        loop, stop = loops[0]
        with suppress(RuntimeError):  # it has failed, and its loop is closed
            loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert not failure, failure
