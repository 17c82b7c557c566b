"""Load processes, kept in step.

A job is a generator: what it yields is a stage that it has reached, and it goes on when told to.

    job                          here
    yield "subscribed"      →    worker.wait()
                            ←    worker.go()
    return Received(...)    →    worker.wait()

So no process polls or sleeps until another one is ready, and the clock starts when all are.
Times are taken from CLOCK_MONOTONIC, which all processes of a machine share.
"""

import contextlib
import gc
import multiprocessing
import signal
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

Stages = Generator[object, None, object]
P = ParamSpec("P")
T = TypeVar("T")

STAGE_SECONDS = 90.0  # longer than any stage takes; what is not there by then is lost

# A clean server process that forks: cheap to start from, and safe whatever threads run here.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["bench.load"])


class LoadFailed(Exception):
    """A load process could not do its part: the broker refused, lost or delayed something."""


@dataclass(frozen=True, slots=True)
class _Crash:
    sentence: str
    trace: str


class Worker:
    """One load process."""

    def __init__(self, job: Callable[P, Stages], *args: P.args, **kwargs: P.kwargs) -> None:
        self._pipe, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_work, args=(theirs, job, args, kwargs))
        self._process.daemon = True
        self._process.start()
        theirs.close()

    def wait(self, kind: type[T], seconds: float = STAGE_SECONDS) -> T:
        """What the job yields or returns next."""
        if not self._pipe.poll(seconds):
            raise LoadFailed(f"no answer from the load within {seconds:.0f} s")
        try:
            value = self._pipe.recv()
        except EOFError:
            raise LoadFailed("a load process died") from None
        if isinstance(value, _Crash):
            raise LoadFailed(value.sentence) from RuntimeError(value.trace)
        if not isinstance(value, kind):
            raise TypeError(f"expected {kind.__name__}, the job reported {value!r}")
        return value

    def go(self) -> None:
        self._pipe.send(None)

    def step(self, kind: type[T]) -> T:
        """Let it go on, and wait for the next stage."""
        self.go()
        return self.wait(kind)

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


class Crew:
    """The workers of one measurement; none outlives it."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []

    def start(self, job: Callable[P, Stages], *args: P.args, **kwargs: P.kwargs) -> Worker:
        worker = Worker(job, *args, **kwargs)
        self._workers.append(worker)
        return worker

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            worker.stop()


def _work(
    pipe: Connection,
    job: Callable[..., Stages],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> None:
    # Ctrl-C reaches the whole process group; the parent ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # a collection in the load would look like a delay in the broker
    with contextlib.suppress(EOFError, BrokenPipeError):  # the parent is gone: nothing to report
        try:
            _perform(pipe, job(*args, **kwargs))
        except BlockingIOError:  # what the bounds on a socket's waits end in
            silence = "the broker neither sent nor took anything for too long"
            pipe.send(_Crash(silence, traceback.format_exc()))
        except Exception as error:
            pipe.send(_Crash(str(error) or type(error).__name__, traceback.format_exc()))


def _perform(pipe: Connection, stages: Stages) -> None:
    try:
        while True:
            pipe.send(next(stages))
            pipe.recv()
    except StopIteration as end:
        pipe.send(end.value)
