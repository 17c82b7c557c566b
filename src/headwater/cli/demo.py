"""`headwater demo`: a broker with simulated clients and a pipeline."""

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.errors import HeadwaterError


def demo(
    directory: Annotated[
        Path | None,
        typer.Argument(
            help="Directory for all files (default: a temporary one that is removed at the end)."
        ),
    ] = None,
    rate: Annotated[
        float,
        typer.Option(min=0.1, max=10_000, help="Messages per second, in total."),
    ] = 50.0,
    seconds: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Stop after this time."),
    ] = None,
    pipeline: Annotated[bool, typer.Option(help="Run the pipeline, which needs Spark.")] = True,
) -> None:
    """Run a broker with simulated clients and a pipeline.

    The clients speak all five protocols, and the pipeline keeps tables of their messages. Ctrl-C
    stops all of it, with exit code 0.
    """
    from headwater.demo.broker import choose_ports
    from headwater.demo.show import Show

    with _place(directory) as place:
        show = Show(place, choose_ports(), rate, pipeline, _say)
        asyncio.run(_until_signal(show.run(seconds)))
        taken = show.sent.pop("consumed", 0)
        counts = ", ".join(f"{name} {count}" for name, count in sorted(show.sent.items()))
        _say(f"Published: {counts}. Taken from the queue of the shop: {taken}.")


def _say(text: str) -> None:
    print(text, flush=True)


@contextmanager
def _place(directory: Path | None) -> Iterator[Path]:
    if directory is not None:
        yield directory.resolve()
        return
    place = Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


async def _until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run until the work ends, or until Ctrl-C or SIGTERM. Of several errors, raise one."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        with suppress(asyncio.CancelledError):
            await task
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    told = group.subgroup(HeadwaterError)
    error: BaseException = group if told is None else told
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
