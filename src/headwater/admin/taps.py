"""Taps: looking at what passes by, without being in anyone's way.

A tap is a cursor at the head that takes everything at once. It counts all messages that match, and
keeps the beginning of a few of them until they are fetched: at most 200 a second. So a tap costs a
few microseconds per batch, however many messages that has, and its memory is bounded. One that
nobody fetches from is dropped.

A tap with a text to look for examines at most so many messages a second, and of each one its
beginning; the others are counted as skipped.
"""

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from headwater.broker.cursor import Cursor, Wants
from headwater.broker.router import OwnedSubscription
from headwater.errors import Code, Refusal
from headwater.filters import Filter
from headwater.message import Batch, Headers

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

MOST_TAPS = 32
ROWS_PER_SECOND = 200
EXAMINED_PER_SECOND = 2000
ROW_BYTES = 4096
FORGOTTEN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Row:
    """The beginning of one message."""

    offset: int
    timestamp: int
    topic: str
    protocol: str
    publisher: str
    headers: Headers
    size: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Catch:
    """What a tap has seen since it was last asked."""

    rows: list[Row]
    passed: int  # messages of the topics
    matched: int  # of these, how many had the text, as far as they were looked at
    skipped: int  # how many are not among the rows although they matched, or were not looked at


class Allowance:
    """So many a second, and no more than that at once."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._at = time.monotonic()
        self.left = per_second

    def refill(self, now: float) -> None:
        more = int((now - self._at) * self._per_second)
        if more:
            self.left = min(self._per_second, self.left + more)
            self._at = now


class Tap(Cursor):
    def __init__(self, broker: "Broker", wanted: Filter, text: str) -> None:
        super().__init__(broker.around)
        self.durable = False
        self._broker = broker
        self._text = text.encode().lower()
        self._rows: deque[Row] = deque()
        self._allowed = Allowance(ROWS_PER_SECOND)
        self._examined = Allowance(EXAMINED_PER_SECOND)
        self._passed = self._matched = self._skipped = 0
        self.fetched_at = time.monotonic()
        self._subscription: OwnedSubscription[Cursor] = OwnedSubscription(
            ("tap", wanted.text), wanted, self, broker.engine.end
        )
        broker.add(self._subscription)

    def close(self) -> None:
        super().close()
        if self._subscription.key in self.subscriptions:
            self._broker.drop(self._subscription)

    def fetch(self) -> Catch:
        now = self.fetched_at = time.monotonic()
        catch = Catch(list(self._rows), self._passed, self._matched, self._skipped)
        self._rows.clear()
        self._passed = self._matched = self._skipped = 0
        self._allowed.refill(now)
        self._examined.refill(now)
        return catch

    def _give(self, batch: Batch, wants: Wants) -> int:
        messages = len(batch.run.payloads)
        self._passed += messages
        if self._text:
            self._search(batch, messages)
        else:
            self._matched += messages
            taken = min(messages, self._allowed.left)
            self._skipped += messages - taken
            for number in range(taken):
                self._keep(batch, number, batch.run.payloads[number])
        return batch.end

    def _search(self, batch: Batch, messages: int) -> None:
        examined = min(messages, self._examined.left)
        self._examined.left -= examined
        self._skipped += messages - examined
        for number in range(examined):
            payload = batch.run.payloads[number]
            if self._text in payload[:ROW_BYTES].lower():
                self._matched += 1
                if self._allowed.left:
                    self._keep(batch, number, payload)
                else:
                    self._skipped += 1

    def _keep(self, batch: Batch, number: int, payload: bytes) -> None:
        run = batch.run
        self._allowed.left -= 1
        self._rows.append(
            Row(
                batch.offset + number,
                batch.timestamp,
                run.topic,
                run.protocol,
                run.publisher,
                run.headers,
                len(payload),
                payload[:ROW_BYTES],
            )
        )

    def _broken(self, sentence: str) -> None:
        """It never reads the log."""


class Taps:
    """All taps of a broker, by number."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._open: dict[int, Tap] = {}
        self._numbers = count(1)
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def open(self, wanted: Filter, text: str) -> int:
        if len(self._open) >= MOST_TAPS:
            raise Refusal(Code.TOO_LARGE, f"there are {MOST_TAPS} live tails already")
        number = next(self._numbers)
        self._open[number] = Tap(self._broker, wanted, text)
        if self._timer is None:
            self._look_later()
        return number

    def fetch(self, number: int) -> Catch:
        return self._named(number).fetch()

    def close(self, number: int) -> None:
        self._named(number).close()
        del self._open[number]

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for tap in self._open.values():
            tap.close()
        self._open.clear()

    def _named(self, number: int) -> Tap:
        tap = self._open.get(number)
        if tap is None:
            raise Refusal(Code.NOT_FOUND, f"there is no tap {number}, or not any more")
        return tap

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(FORGOTTEN_SECONDS / 4, self._drop_forgotten)

    def _drop_forgotten(self) -> None:
        since = time.monotonic() - FORGOTTEN_SECONDS
        for number, tap in list(self._open.items()):
            if tap.fetched_at < since:
                self.close(number)
        self._timer = None
        if self._open:
            self._look_later()
