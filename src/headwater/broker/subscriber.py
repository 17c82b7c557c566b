"""A subscriber: the cursor of one connection, for all its subscriptions."""

import logging
from collections import deque

from mypy_extensions import mypyc_attr

from headwater.broker.cursor import Cursor, Surroundings, Wants
from headwater.broker.router import Route
from headwater.commands import Outlet
from headwater.errors import Code, Refusal
from headwater.message import Batch

logger = logging.getLogger(__name__)

# How many stretches of its own messages a connection may leave unskipped while it is behind.
OWN_STRETCHES = 10_000


@mypyc_attr(allow_interpreted_subclasses=True)
class Subscriber(Cursor):
    def __init__(self, around: Surroundings, *, outlet: Outlet, name: str | None = None) -> None:
        super().__init__(around)
        self._outlet = outlet
        #: The name that its position is remembered under, if it is.
        self.name = name
        self.durable = name is not None
        self._own: deque[tuple[int, int]] = deque()  # its own messages, not to be echoed
        # For which subscriptions the batch at this offset was given: there was no room for others.
        self._given: dict[tuple[str, str], int] = {}
        self._holds = 0

    def hold(self) -> None:
        """Give nothing until `release`: an answer that has to come first is not sent yet."""
        self._holds += 1
        if self._position is None:
            self._position = self.position

    def release(self) -> None:
        self._holds -= 1
        self.pump()

    def pump(self) -> None:
        if not self._holds:
            super().pump()

    def skip(self, batch: Batch) -> None:
        """A batch of its own that it does not want back."""
        if self._position is None and not self._head.waiting:
            return
        if self._own and self._own[-1][1] == batch.offset:
            self._own[-1] = (self._own[-1][0], batch.end)
        else:
            self._own.append((batch.offset, batch.end))

    def skipped(self, batch: Batch) -> None:
        """A batch of its own had to wait, and was pushed to others now."""
        if self._position is None:
            self._forget_own(batch.end)

    @property
    def overcommitted(self) -> bool:
        """It publishes much and reads little of what others publish: it should do that first."""
        return len(self._own) >= OWN_STRETCHES

    def confirm(self, offset: int) -> None:
        """The client has received everything before `offset`."""
        if self.name is not None and not self._closed:
            self._engine.notes.save_cursor(self.name, offset)

    def rewind(self, end: int) -> None:
        super().rewind(end)
        while self._own and self._own[-1][1] > end:
            self._own.pop()

    def _give(self, batch: Batch, wants: Wants) -> int:
        if self._given:
            wants = self._not_given(batch, wants)
        count = self._outlet.deliver(batch, wants)
        if count == len(wants):
            self._given.clear()
            return batch.end
        self._given.update(dict.fromkeys([each.key for each in wants[:count]], batch.offset))
        return batch.offset

    def _not_given(self, batch: Batch, wants: Wants) -> Wants:
        """Those for which a batch, of which there was room for some, was not given yet."""
        return tuple(each for each in wants if self._given.get(each.key) != batch.offset)

    def _caught_up(self) -> None:
        self._forget_own(self._limit())

    def _forget_own(self, before: int) -> None:
        while self._own and self._own[0][1] <= before:
            self._own.popleft()

    def _wants(self, batch: Batch, route: Route[Cursor]) -> Wants:
        return () if self._is_own(batch) else super()._wants(batch, route)

    def _is_own(self, batch: Batch) -> bool:
        self._forget_own(batch.offset)
        return bool(self._own) and self._own[0][0] <= batch.offset

    def _broken(self, sentence: str) -> None:
        self._outlet.dismiss(Refusal(Code.INTERNAL, sentence))
