"""A connection as the broker sees it, for tests of the broker without sockets or codecs."""

import asyncio
from collections.abc import Sequence

from headwater.broker.broker import Broker
from headwater.commands import Acknowledge, Command, Consume, Outlet, Publish, Subscription
from headwater.errors import Refusal
from headwater.log.engine import Settled
from headwater.message import EXACTLY_ONCE, Batch, Headers, Run
from headwater.queue_spec import QueueSpec
from headwater.rights import Rights
from headwater.traffic import Meter

KEY = ("queue", "")


class Client(Outlet):
    """Takes what it is given, up to its window; acknowledges when it is told to.

    What clients make is saved at once, so that tests need not wait for it; `test_saved.py` does.
    """

    saves_at_once = True

    def __init__(self, broker: Broker, window: int = 1000, rights: Rights | None = None) -> None:
        self.window = window
        self.held: dict[int, bytes] = {}
        #: All that was ever delivered: offset, payload, and whether it may be a repeat.
        self.delivered: list[tuple[int, bytes, bool]] = []
        self.answers: list[bytes] = []
        self.refused: list[Refusal] = []
        self.closed = False
        self.paused: set[str] = set()
        self.meter = Meter()
        self.address = "192.0.2.1:5000"
        if self.saves_at_once:
            broker.engine.notes.when_saved = _saved_at_once  # type: ignore[method-assign]
        self.peer = broker.join(self, rights)

    def consume(self, spec: QueueSpec, prefetch: int | None = None) -> None:
        self.peer.handle(Consume(KEY, spec, prefetch=prefetch))

    def acknowledge(self, *offsets: int) -> None:
        for offset in offsets:
            self.held.pop(offset, None)
        self.peer.handle(Acknowledge(KEY, offsets))

    def publish(
        self,
        topic: str,
        *payloads: bytes,
        once: Sequence[int] = (),
        again: bool = False,
        headers: Headers = (),
    ) -> None:
        """`once`: the number of each message, which is to be stored exactly once."""
        if once:
            headers = (EXACTLY_ONCE, *headers)
        run = Run(topic, list(payloads), protocol="test", publisher="me", headers=headers)
        self.peer.handle(Publish(run, b"OK" * len(payloads), once=once, again=again))

    def leave(self) -> None:
        self.closed = True
        self.peer.leave()

    # What the broker calls

    def offer(
        self, batch: Batch, key: tuple[str, str], again: bool, most: int
    ) -> tuple[int, Sequence[int]] | None:
        room = min(most, self.window - len(self.held))
        if room <= 0 or self.closed:
            return None
        batch = batch.part(batch.offset, batch.offset + room)
        for offset, payload in enumerate(batch.run.payloads, batch.offset):
            self.held[offset] = payload
            self.delivered.append((offset, payload, again))
        return batch.end, range(batch.offset, batch.end)

    def retract(self, key: tuple[str, str], offsets: Sequence[int]) -> None:
        for offset in offsets:
            self.held.pop(offset, None)

    def deliver(self, batch: Batch, subscriptions: tuple[Subscription, ...]) -> int:
        self.delivered += [
            (offset, payload, False)
            for offset, payload in enumerate(batch.run.payloads, batch.offset)
        ]
        return len(subscriptions)

    def respond(self, answer: bytes) -> None:
        self.answers.append(answer)

    def refuse(self, command: Command, error: Refusal) -> None:
        self.refused.append(error)

    def pause(self, why: str) -> None:
        self.paused.add(why)

    def resume(self, why: str) -> None:
        self.paused.discard(why)

    def close(self, answer: bytes, reason: str) -> None:
        self.closed = True

    def challenge(self) -> None: ...

    def dismiss(self, error: Refusal) -> None:
        self.closed = True


def _saved_at_once(done: Settled) -> None:
    done(None)


async def settle(broker: Broker) -> None:
    """Until everything is durable and no cursor is about to give more."""
    done = asyncio.Event()
    broker.engine.when_durable(broker.engine.end, lambda _: done.set())
    broker.engine.hurry()
    await done.wait()
    while broker.busy:
        await asyncio.sleep(0)
