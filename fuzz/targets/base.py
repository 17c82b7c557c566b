"""What is given inputs, as the campaign sees it."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Violation(Exception):
    """Something that must not happen, whatever the input is."""


class Target(ABC):
    """Opened and closed again many times, with an empty directory each time: what a broker has to
    remember is no leak."""

    name: str
    #: After so many inputs it is opened anew.
    inputs_per_opening = 2_000
    #: Inputs have objects of JSON in them.
    has_json = False
    #: How busy the broker is kept, in seconds: what the loop's thread needs of the processor. While
    #: it waits for a disk or for another thread, it serves others.
    clock: Callable[[], float] = staticmethod(time.thread_time)

    #: It works off an input in turns of the loop, and others are served in between: how long one of
    #: these turns takes is what counts, and not how long all of them do.
    takes_turns = False

    @abstractmethod
    def seeds(self) -> list[bytes]:
        """Inputs to begin with."""

    @abstractmethod
    def words(self) -> list[bytes]:
        """What inputs are made of."""

    def finished(self, data: bytes) -> bytes:
        """An input that was made from others, with what it should have to get anywhere."""
        return data

    @abstractmethod
    async def open(self, directory: Path) -> None: ...

    @abstractmethod
    async def run(self, data: bytes) -> None:
        """One input. Whatever is raised is a finding."""

    @abstractmethod
    async def close(self) -> None: ...


class Complaints(logging.Handler):
    """Errors that were only logged: the broker goes on, but they are findings all the same."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._found: list[str] = []

    def install(self) -> None:
        logging.getLogger().handlers = [self]
        logging.getLogger().setLevel(logging.WARNING)
        logging.captureWarnings(True)

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(logging.Formatter().format(record))

    def hear(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What an event loop cannot tell anyone else."""
        error = context.get("exception")
        self._found.append(f"{context['message']}: {error!r}")
        if error is not None and error.__traceback__ is not None:
            self._found[-1] = logging.Formatter().formatException(
                (type(error), error, error.__traceback__)
            )

    def take(self) -> list[str]:
        found, self._found = self._found, []
        return found
