"""The console's way to the broker: its control socket, asked as seldom as possible.

However many pages are open, the same question is put to the broker once within a moment: whoever
asks it meanwhile gets the same answer.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.control import protocol
from headwater.control.protocol import ControlRequest
from headwater.errors import Code, HeadwaterError, Refusal

MOST_LINKS = 8
ASK_SECONDS = 15.0
MOST_KEPT = 512

_CODES = {code.value: code for code in Code}


class NoAnswer(HeadwaterError):
    """The broker is not there, or does not answer."""


class _Link:
    """One connection to the control socket: a request, then its answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, directory: Path) -> "_Link":
        with protocol.address(directory) as path:
            return cls(
                *await asyncio.open_unix_connection(path, limit=protocol.MOST_ANSWER_BYTES + 1)
            )

    @property
    def is_open(self) -> bool:
        """Whether the broker has not hung up, as it does when it ends."""
        return not (self._reader.at_eof() or self._writer.is_closing())

    async def ask(self, request: ControlRequest) -> dict[str, Any]:
        self._writer.write(request.encode())
        while True:
            line = await self._reader.readuntil(b"\n")
            answer: dict[str, Any] = json.loads(line)
            if "progress" not in answer:
                return answer

    def close(self) -> None:
        self._writer.close()


@dataclass(frozen=True, slots=True)
class _Kept:
    until: float
    answer: "asyncio.Future[Any]"


class ControlLink:
    def __init__(self, data: Path) -> None:
        self._data = data
        self._idle: list[_Link] = []
        self._slots = asyncio.Semaphore(MOST_LINKS)
        self._kept: dict[str, _Kept] = {}

    async def ask(self, do: str, timeout: float | None = ASK_SECONDS, **arguments: Any) -> Any:
        """What the broker says. Raises Refusal with its sentence, or NoAnswer. Who may take as long
        as it takes (no timeout) does not keep others from asking."""
        async with self._slots if timeout is not None else nullcontext():
            try:
                async with asyncio.timeout(timeout):
                    answer = await self._ask(ControlRequest(do, arguments))
            except (OSError, EOFError, ValueError, TimeoutError):
                raise NoAnswer("the broker does not answer") from None
        if "error" in answer:
            code = _CODES.get(answer.get("code", ""), Code.MALFORMED)
            raise Refusal(code, answer["error"])
        return answer["result"]

    async def recent(self, seconds: float, do: str, **arguments: Any) -> Any:
        """The same, or what was said to the same question at most so long ago."""
        key = json.dumps([do, arguments], sort_keys=True)
        return await self.shared(seconds, key, lambda: self.ask(do, **arguments))

    async def shared(self, seconds: float, key: str, work: Callable[[], Awaitable[Any]]) -> Any:
        now = time.monotonic()
        kept = self._kept.get(key)
        if kept is None or (kept.answer.done() and kept.until <= now):
            self._forget(now)
            kept = _Kept(now + seconds, asyncio.ensure_future(work()))
            kept.answer.add_done_callback(_noticed)
            self._kept[key] = kept
        return await asyncio.shield(kept.answer)

    def close(self) -> None:
        for link in self._idle:
            link.close()
        self._idle.clear()

    async def _ask(self, request: ControlRequest) -> dict[str, Any]:
        link = self._take_idle() or await _Link.open(self._data)
        try:
            answer = await link.ask(request)
        except BaseException:
            link.close()  # half an answer may still be on its way
            raise
        if len(self._idle) < MOST_LINKS:
            self._idle.append(link)
        else:
            link.close()
        return answer

    def _take_idle(self) -> _Link | None:
        while self._idle:
            link = self._idle.pop()
            if link.is_open:
                return link
            link.close()
        return None

    def _forget(self, now: float) -> None:
        if len(self._kept) >= MOST_KEPT:
            for key, kept in list(self._kept.items()):
                if kept.answer.done() and kept.until <= now:
                    del self._kept[key]


def _noticed(answer: "asyncio.Future[Any]") -> None:
    """An error that nobody waits for any more is no error."""
    with suppress(asyncio.CancelledError):
        answer.exception()
