"""Payloads that are too large for one request of the control socket: they come piece by piece, so
that no request takes the event loop for long, and wait here until their message is published.

What is kept is bounded: a few at a time, each as large as a message may be, and not for long.
"""

import asyncio
from itertools import count

from headwater.errors import Code, Refusal

MOST_UPLOADS = 4
MOST_BYTES = 16 << 20
#: Whoever does not go on within so long has given up.
IDLE_SECONDS = 30.0


class Uploads:
    def __init__(self, message_bytes: int) -> None:
        self._most = min(message_bytes, MOST_BYTES)
        self._open: dict[int, bytearray] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._numbers = count(1)

    def add(self, number: int | None, piece: bytes) -> int:
        """The next piece of an upload, or the first one of a new one. Returns its number."""
        if number is None:
            number = self._begin()
        content = self._found(number)
        if len(content) + len(piece) > self._most:
            self._drop(number)
            limit = "message_bytes" if self._most < MOST_BYTES else ""
            why = f"a message has at most {self._most} bytes here"
            raise Refusal(Code.TOO_LARGE, why, limit=limit)
        content += piece
        self._wait_for_more(number)
        return number

    def take(self, number: int) -> bytes:
        """All of it; it is not kept any longer."""
        content = self._found(number)
        self._drop(number)
        return bytes(content)

    def _begin(self) -> int:
        if len(self._open) >= MOST_UPLOADS:
            raise Refusal(Code.UNAVAILABLE, "too many large messages at the same time: try again")
        number = next(self._numbers)
        self._open[number] = bytearray()
        return number

    def _found(self, number: int) -> bytearray:
        content = self._open.get(number)
        if content is None:
            raise Refusal(Code.NOT_FOUND, f"there is no upload {number}, or not any more")
        return content

    def _wait_for_more(self, number: int) -> None:
        if (timer := self._timers.get(number)) is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[number] = loop.call_later(IDLE_SECONDS, self._drop, number)

    def _drop(self, number: int) -> None:
        del self._open[number]
        if (timer := self._timers.pop(number, None)) is not None:
            timer.cancel()
