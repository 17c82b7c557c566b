"""The broker: takes runs, gives them to the log, and to everyone who wants them.

It knows topics, subscriptions and positions, and no protocol. The straight way of a message:

    Peer._publish → Broker.publish → Engine.append        it has an offset
                                   → Subscriber.push      live subscribers have it
                    Broker.committed → Peer.settled       it is durable: answers go out
                                     → Subscriber.push    durable subscribers have it
"""

import logging
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from time import perf_counter

from mypy_extensions import mypyc_attr

from headwater.broker.chores import Chores
from headwater.broker.cursor import Cursor, Head, Surroundings
from headwater.broker.delays import Delays, original
from headwater.broker.late import FanOut
from headwater.broker.matching.matcher import Matcher
from headwater.broker.peer import Peer
from headwater.broker.queues.backlog import Backlogs
from headwater.broker.queues.consumer import Consumer
from headwater.broker.queues.dead import DeadLetters
from headwater.broker.queues.owners import QueueOwners
from headwater.broker.queues.queue import Queue
from headwater.broker.queues.unused import UnusedQueues
from headwater.broker.quotas import Accounts, Quotas
from headwater.broker.repeats import RepeatWindow, is_remembered, keys_of
from headwater.broker.router import (
    DELAYED,
    TOO_COSTLY,
    OwnedSubscription,
    Route,
    Router,
    Wants,
)
from headwater.broker.subscriber import Subscriber
from headwater.commands import Consume, Outlet, Subscribe
from headwater.errors import Code, Refusal
from headwater.filters import Filter, RegexFilter
from headwater.gate import Gate, OpenGate
from headwater.log.engine import Engine, Receipt
from headwater.message import Batch, Group, Run
from headwater.queue_spec import QueueSpec
from headwater.rights import Rights, everything

logger = logging.getLogger(__name__)

# How long a repeat of a message that is to be stored exactly once is recognised.
REPEAT_SECONDS = 120.0
READ_BYTES = 4 * 1024 * 1024
# Until when such messages came, so that a restart need not search the log for them. It is noted
# ahead of time, once in a while: what is noted has to be on the disk before the log has moved on by
# UNNOTED_MICROSECONDS, or a crash of the machine could take it away.
LAST_ONCE = "the last message to be stored exactly once"
NOTED_AHEAD_MICROSECONDS = 10_000_000
UNNOTED_MICROSECONDS = 1_000_000
# Who leaves with more subscriptions, or queues, than this leaves in pieces.
DROPPED_AT_ONCE = 50
# More batches than this are pushed in slices. Publishers have so many in a group at most.
PUSHED_AT_ONCE = 512
ONE_TURN = 8192
# A batch is pushed to all that want it for so long; then others have their turn. Before so many
# have it, nobody looks at the clock.
PUSH_SECONDS = 0.004
PUSHED_UNTIMED = 32


@mypyc_attr(allow_interpreted_subclasses=True)
class Broker:
    def __init__(
        self,
        engine: Engine,
        *,
        quotas: Quotas | None = None,
        client_queues: int = 100_000,
        repeat_seconds: float = REPEAT_SECONDS,
        gate: Gate | None = None,
    ) -> None:
        self.engine = engine
        #: Knows who clients are.
        self.gate = gate or OpenGate()
        self.accounts = Accounts(quotas or Quotas(), engine)
        self.chores = Chores()
        self.matcher = Matcher()
        self.router: Router[Cursor] = Router(self.chores, self.matcher)
        self.around = Surroundings(engine, self.router)
        #: Messages that retention took before someone got them.
        self.gaps = self.around.gaps
        self.read_errors = self.around.read_errors
        self.queues: dict[str, Queue] = {}
        self.dead = DeadLetters(self)
        self.delays = Delays(self)
        self._backlogs = Backlogs(self)
        self.unused = UnusedQueues(self, client_queues)
        self.owners = QueueOwners(engine.notes, self.accounts.quotas.queues_per_user)
        self.repeats = RepeatWindow(repeat_seconds, time.monotonic)
        # Before anything is published, also by those who finish what a crash has interrupted.
        self._found_timestamp = engine.timestamp
        self._noted_once = 0  # up to this time it is noted that there may be such messages
        self._subscribers: set[Subscriber] = set()
        self._durable: dict[str, tuple[Peer, Subscriber]] = {}  # by the name they are known under
        self._subscriptions = 0
        self._consumers = 0
        #: By topic, the newest batch that is on its way to very many.
        self.fan_outs: dict[str, FanOut] = {}
        self._sole: dict[str, Peer] = {}  # names that one connection may have at a time
        engine.attach(self)

    async def recall(self) -> None:
        """Read from the log what may be repeated now, and what an interrupted operation has done:
        call this once, before anyone connects."""
        await self.dead.recover()
        await self.delays.recover()
        # From the newest message on, if that is older: the clock may have jumped ahead meanwhile.
        now = min(time.time_ns() // 1000, self._found_timestamp)
        since = now - int(self.repeats.seconds * 1e6)
        if (self.engine.notes.load_number(LAST_ONCE) or 0) < since:
            # Nothing to recall, but what came in the moment before a crash and was not noted.
            since = max(since, self._found_timestamp - UNNOTED_MICROSECONDS)
        position = await self.engine.offset_at(since)
        stop = self.engine.watermark
        while position < stop:
            batches, position = await self.engine.read(position, lambda topic: True, READ_BYTES)
            for batch in batches:
                if is_remembered(batch.run):
                    self.repeats.remember(keys_of(original(batch.run)), batch.offset, stop)

    def remember(self, keys: Sequence[int], batch: Batch) -> None:
        """A repeat of these messages is not to be stored."""
        self.repeats.remember(keys, batch.offset, self.engine.watermark)
        if batch.timestamp > self._noted_once:
            self._noted_once = batch.timestamp + NOTED_AHEAD_MICROSECONDS
            self.engine.notes.save_number(LAST_ONCE, self._noted_once)

    def close(self) -> None:
        self.dead.close()
        self.delays.close()
        self._backlogs.close()
        self.unused.close()
        for queue in self.queues.values():
            queue.close()

    async def stop(self) -> None:
        """Close, and end what runs beside it."""
        self.close()
        await self.matcher.close()

    def join(self, outlet: Outlet, rights: Rights | None = None) -> Peer:
        """A connection arrives. Without rights, it may do everything."""
        return Peer(self, outlet, rights or everything())

    def access_changed(self) -> None:
        """Rights are others now: who gets a topic has to be found anew."""
        self.router.forget_all()

    def publish(self, run: Run, receipt: Receipt | None, exclude: Subscriber | None) -> Batch:
        if run.headers or run.topic == DELAYED:
            run = self.delays.put_off(run)
        batch = self.engine.append(run, receipt)
        if run.topic == DELAYED:
            self.delays.add(batch)
            return batch
        if self.around.live.waiting:
            self._push_later(self.around.live, [batch], exclude)
            self.engine.hurry()
            return batch
        route = self.router.route(run.topic)
        self._push(self.around.live, batch, route.live, exclude)
        if route.undecided:
            self._hesitate(batch, route, durable=False)
        if route.durable:
            self.engine.hurry()
        return batch

    def _push(
        self, head: Head, batch: Batch, wants: Sequence[Wants[Cursor]], exclude: object
    ) -> None:
        """Give a new batch to those who are at the head and want it."""
        head.pushing = batch.offset
        if len(wants) <= PUSHED_UNTIMED:
            for subscriber, subscriptions in wants:
                if subscriber is not exclude:
                    subscriber.push(batch, subscriptions)
        else:
            self._push_to_many(batch, wants, exclude)
        head.pushing = None

    def _push_to_many(self, batch: Batch, wants: Sequence[Wants[Cursor]], exclude: object) -> None:
        stop = perf_counter() + PUSH_SECONDS
        for number, (subscriber, subscriptions) in enumerate(wants, 1):
            if subscriber is not exclude:
                subscriber.push(batch, subscriptions)
            if not number % PUSHED_UNTIMED and perf_counter() >= stop:
                break
        late = [
            subscriber
            for subscriber, subscriptions in wants[number:]
            if subscriber is not exclude and subscriber.put_off(batch, subscriptions)
        ]
        if late:
            topic = batch.run.topic
            fan_out = self.fan_outs[topic] = FanOut()
            self.chores.add(self._go_on(late, topic, fan_out))

    def _go_on(self, cursors: list[Cursor], topic: str, fan_out: FanOut) -> Iterator[None]:
        for cursor in cursors:
            try:
                cursor.go_on()
            except Exception:  # the others have nothing to do with it
                logger.exception("a subscriber cannot go on")
            yield
        if self.fan_outs.get(topic) is fan_out:
            del self.fan_outs[topic]
        fan_out.done()

    def _hesitate(self, batch: Batch, route: Route[Cursor], *, durable: bool) -> None:
        for subscriber in route.undecided:
            if subscriber.durable == durable:
                subscriber.hesitate(batch)

    def prepare(self, runs: Sequence[Run]) -> Group:
        """What `publish_all` takes. Any thread may do this. Raises Refusal."""
        return Group([self.delays.put_off(run) for run in runs])

    def publish_all(self, group: Group) -> Sequence[Batch]:
        """Publish runs that become durable in one step."""
        batches = self.engine.append_all(group)
        self._push_later(self.around.live, batches)
        return batches

    def committed(self, batches: Sequence[Batch]) -> None:
        if self.around.durable.waiting or (
            len(batches) > PUSHED_AT_ONCE and (self._durable or self._consumers)
        ):
            self._push_later(self.around.durable, batches)
        elif self._durable or self._consumers:
            for batch in batches:
                route = self.router.route(batch.run.topic)
                if route.durable:
                    self._push(self.around.durable, batch, route.durable, None)
                if route.undecided:
                    self._hesitate(batch, route, durable=True)

    def _push_later(
        self, head: Head, batches: Sequence[Batch], exclude: Subscriber | None = None
    ) -> None:
        """Push batches in slices, behind those that wait."""
        begun = bool(head.waiting)
        head.waiting.extend([(batch, exclude) for batch in batches])
        at_once = PUSHED_AT_ONCE
        if begun and len(batches) <= ONE_TURN:  # or more would come than goes
            at_once = 2 * len(batches)
        for _ in range(at_once):
            if not head.waiting:
                return
            self._push_next(head)
        if head.waiting and not begun:
            self.chores.add(self._push_all(head))

    def _push_all(self, head: Head) -> Iterator[None]:
        while head.waiting:
            self._push_next(head)
            yield

    def _push_next(self, head: Head) -> None:
        durable = head is self.around.durable
        batch, exclude = head.waiting.popleft()
        if batch.run.topic == DELAYED:
            if not durable:
                self.delays.add(batch)
            return
        route = self.router.route(batch.run.topic)
        # Some may have come since the batch did.
        wants = [
            (subscriber, since)
            for subscriber, subscriptions in (route.durable if durable else route.live)
            if (since := tuple([each for each in subscriptions if each.since <= batch.offset]))
        ]
        self._push(head, batch, wants, exclude)
        if isinstance(exclude, Subscriber):
            exclude.skipped(batch)
        if route.undecided:
            self._hesitate(batch, route, durable=durable)

    def rewound(self, end: int) -> None:
        self.around.live.rewind(end)
        self.around.durable.rewind(end)
        for subscriber in self._subscribers:
            subscriber.rewind(end)
        for queue in self.queues.values():
            queue.rewind(end)
        self.repeats.rewind(end)
        self.delays.rewound(end)
        self.accounts.rewound(end)

    def queue(self, spec: QueueSpec) -> Queue:
        """The queue of that name, which begins to exist now if it does not yet."""
        queue = self.look_at(spec)
        if spec.name not in self.queues:
            self.queues[spec.name] = queue
            queue.begin()
            self._backlogs.watch(queue)
            self.unused.add(spec)
        return queue

    def forget_queue(self, name: str) -> None:
        """There is no such queue any more, nor anything that was noted of it."""
        if (queue := self.queues.pop(name, None)) is not None:
            queue.close()
        self.engine.notes.delete_queue(name)
        self.owners.forget(name)

    def look_at(self, spec: QueueSpec) -> Queue:
        """The queue of that name as it is, or was when the broker stopped. Nothing changes by it:
        `spec` is not that of the queue, unless a consumer comes with the same."""
        return self.queues.get(spec.name) or Queue(self, spec, self.dead.bury)

    def queue_for(self, spec: QueueSpec, rights: Rights) -> Queue:
        """The queue that someone is about to consume, who owns it if it is new."""
        if spec.name not in self.queues:
            self.owners.made(spec, rights)
        return self.queue(spec)

    def consume(self, command: Consume, outlet: Outlet, rights: Rights) -> tuple[Queue, Consumer]:
        """A connection begins to take messages from a queue, once it calls `Queue.start`."""
        self._consumers += 1
        queue = self.queue_for(command.queue, rights)
        return queue, queue.add(command.key, outlet, command.prefetch, rights.queues)

    def abandon_all(self, consumers: list[tuple[Queue, Consumer]]) -> None:
        """A connection takes no more from these queues."""
        self.in_pieces(self._abandon(consumers))

    def _abandon(self, consumers: list[tuple[Queue, Consumer]]) -> Iterator[None]:
        for number, (queue, consumer) in enumerate(consumers, 1):
            self._consumers -= 1
            queue.remove(consumer)
            if not number % DROPPED_AT_ONCE and number < len(consumers):
                yield

    @property
    def subscriptions(self) -> int:
        """How many subscriptions there are, and consumers of queues."""
        return self._subscriptions + self._consumers

    @property
    def busy(self) -> bool:
        """Some cursor is about to give more, without anyone asking."""
        pushing = self.around.live.waiting or self.around.durable.waiting
        reading = bool(pushing) or any(each.busy for each in self._subscribers)
        return reading or any(queue.busy for queue in self.queues.values())

    def lags(self) -> Iterator[int]:
        """How many offsets each subscriber that is behind is behind."""
        end = self.engine.end
        return (end - each.position for each in self._subscribers if each.behind)

    def claim(self, name: str, peer: Peer) -> None:
        """Have a name that no other connection has. Who has it and is alive keeps it, so nobody can
        push others out; who is gone without a word loses it, and the next try succeeds."""
        holder = self._sole.setdefault(name, peer)
        if holder is not peer:
            holder.challenge()
            raise Refusal(Code.ALREADY_EXISTS, f"{name} is connected already")

    def release(self, peer: Peer) -> None:
        for name in [name for name, holder in self._sole.items() if holder is peer]:
            del self._sole[name]

    def subscriber(self, peer: Peer, outlet: Outlet, name: str | None) -> Subscriber:
        """A new cursor for a connection. A durable name has one holder: the newest."""
        subscriber = Subscriber(self.around, outlet=outlet, name=name)
        self._subscribers.add(subscriber)
        if subscriber.name is not None:
            if (holder := self._durable.get(subscriber.name)) is not None:
                self.remove(holder[1])
                holder[0].dismiss(Refusal(Code.UNAVAILABLE, "another connection took over"))
            self._durable[subscriber.name] = (peer, subscriber)
        return subscriber

    def resume(self, subscriber: Subscriber, command: Subscribe) -> bool:
        """Let a durable subscriber go on where it stopped; a new one starts where it asks to.
        Returns whether it may only begin when that is saved: a crash would make it begin later."""
        assert subscriber.name is not None
        notes = self.engine.notes
        position = notes.load_cursor(subscriber.name)
        unsaved = False
        if position is None:
            # What it was before it had a user's name, or in an earlier version.
            for name in (command.durable, command.known_as):
                if position is None and name is not None:
                    position = notes.load_cursor(name)
            if position is None:
                unsaved = not command.from_start
                position = self.engine.start if command.from_start else self.engine.watermark
            notes.save_cursor(subscriber.name, position)
        subscriber.start_from(position)
        return unsaved

    def check(self, wanted: Filter) -> None:
        """Raise Refusal if nobody may subscribe with that now."""
        if not wanted.simple and self.matcher.has_refused(wanted.text):
            raise Refusal(Code.TOO_LARGE, TOO_COSTLY)

    def add(self, subscription: OwnedSubscription[Cursor]) -> None:
        subscription.owner.subscriptions[subscription.key] = subscription
        subscription.owner.patterns += isinstance(subscription.filter, RegexFilter)
        self._subscriptions += 1
        self.router.add(subscription)

    def drop(self, subscription: OwnedSubscription[Cursor]) -> None:
        del subscription.owner.subscriptions[subscription.key]
        subscription.owner.patterns -= isinstance(subscription.filter, RegexFilter)
        self._subscriptions -= 1
        self.router.remove(subscription)

    def _drop_all(self, subscriber: Subscriber) -> Iterator[None]:
        while subscriptions := list(islice(subscriber.subscriptions.values(), DROPPED_AT_ONCE)):
            for subscription in subscriptions:
                self.drop(subscription)
            if subscriber.subscriptions:
                yield

    def in_pieces(self, work: Iterator[None]) -> None:
        """The first at once, and most often that is all."""
        if next(work, self) is None:
            self.chores.add(work)

    def remove(self, subscriber: Subscriber) -> None:
        """Forget a subscriber and its subscriptions. Doing so twice is harmless."""
        subscriber.close()
        self.in_pieces(self._drop_all(subscriber))
        self._subscribers.discard(subscriber)
        if subscriber.name is not None:
            holder = self._durable.get(subscriber.name)
            if holder is not None and holder[1] is subscriber:
                del self._durable[subscriber.name]
