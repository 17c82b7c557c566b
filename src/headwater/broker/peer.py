"""A peer: one connection's standing in the broker, and one handler for each command."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.actions import ANONYMOUS, PUBLISH, SUBSCRIBE
from headwater.broker.cursor import Cursor
from headwater.broker.interests import Interest, of_consumers, of_subscriber
from headwater.broker.quotas import OverQuota
from headwater.broker.repeats import Resent, keys_of
from headwater.broker.router import OwnedSubscription
from headwater.broker.subscriber import Subscriber
from headwater.commands import (
    Acknowledge,
    Advertise,
    BrokerPeer,
    Close,
    Command,
    Confirm,
    Consume,
    Identify,
    Outlet,
    Password,
    Publish,
    Respond,
    Subscribe,
    Unsubscribe,
)
from headwater.errors import Code, LogUnavailable, Refusal
from headwater.filters import RegexFilter
from headwater.log.engine import Receipt
from headwater.rights import LOCAL, NOBODY, Rights
from headwater.slowing import FAN_OUT, LOG, LOGIN, RATE, SAVING, SUBSCRIPTIONS

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.queues.consumer import Consumer
    from headwater.broker.queues.queue import Queue


# Of the queues that a connection consumes, so many are looked at before others have their turn.
UNBLOCKED_AT_ONCE = 50


class PublishReceipt(Receipt):
    """Tells a peer how something that it published has ended."""

    def __init__(self, peer: "Peer", command: Publish) -> None:
        self._peer, self._command = peer, command

    def settled(self, error: LogUnavailable | None) -> None:
        self._peer.settled(self._command, error)


class Peer(BrokerPeer):
    def __init__(self, broker: "Broker", outlet: Outlet, rights: Rights) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._outlet = outlet
        self.rights = rights
        self._quotas = broker.accounts.quotas
        self._account = broker.accounts.of(rights)
        self._pace = broker.accounts.pace(self._account)
        broker.accounts.joined(self._account, rights.principal)
        self._meter = outlet.meter
        #: What the client calls itself, if it has said so.
        self.name = ""
        self._subscriber: Subscriber | None = None
        self._consumers: dict[tuple[str, str], tuple[Queue, Consumer]] = {}
        self._resent = Resent(broker.repeats)
        self._sole = False  # it has a name that others cannot have
        self._published = 0  # the end of the last batch it published
        self._left = False
        self._waiting_for_log = False
        self._unblocking = self._unblock_again = False
        self._logging_in = False

    @property
    def position(self) -> int:
        """How far into the log this connection is."""
        return self._subscriber.position if self._subscriber else self._engine.end

    @property
    def subscriptions(self) -> int:
        """How many subscriptions and queues it takes messages from."""
        subscribed = 0 if self._subscriber is None else len(self._subscriber.subscriptions)
        return subscribed + len(self._consumers)

    @property
    def lag(self) -> int:
        """How many offsets it is behind, at most; what it did not ask for counts too."""
        lag = 0
        if self._subscriber is not None and self._subscriber.behind:
            lag = self._engine.end - self._subscriber.position
        for queue, consumer in self._consumers.values():
            lag = max(lag, self._engine.watermark - queue.position_of(consumer))
        return lag

    def interests(self) -> list[Interest]:
        """What it takes messages from."""
        found = [] if self._subscriber is None else of_subscriber(self._subscriber, self._engine)
        return found + of_consumers(self._consumers.values(), self._engine)

    def handle(self, command: Command) -> None:
        try:
            if isinstance(command, Publish):  # nearly always
                self._publish(command)
            else:
                _HANDLERS[type(command)](self, command)
        except Refusal as error:
            self._refuse(command, error)

    def drained(self) -> None:
        """The connection has sent all it had."""
        if self._subscriber is not None:
            self._subscriber.pump()
            if not self._subscriber.overcommitted:
                self._outlet.resume(SUBSCRIPTIONS)
        self._unblock()

    def _unblock(self) -> None:
        """The window of a connection is for all queues that it consumes."""
        if self._unblocking:
            self._unblock_again = True
        elif self._consumers:
            self._unblocking = True
            self._broker.in_pieces(self._unblock_all())

    def _unblock_all(self) -> Iterator[None]:
        for number, (queue, consumer) in enumerate(list(self._consumers.values()), 1):
            if consumer.blocked and not self._left:
                queue.resume(consumer)
            if not number % UNBLOCKED_AT_ONCE:
                yield
        self._unblocking = False
        if self._unblock_again:
            self._unblock_again = False
            self._unblock()

    def leave(self) -> None:
        """The connection is gone. One that stood in line may say so twice."""
        if self._left:
            return
        self._left = True
        self._broker.accounts.left(self._account)
        if self._subscriber is not None:
            self._broker.remove(self._subscriber)
        self._broker.abandon_all(list(self._consumers.values()))
        if self._sole:
            self._broker.release(self)

    def challenge(self) -> None:
        self._outlet.challenge()

    def dismiss(self, error: Refusal) -> None:
        self._outlet.dismiss(error)

    def _advertise(self, command: Advertise) -> None:
        if not self.rights.publish.may(command.topic):
            raise self.rights.refusal(PUBLISH, command.topic)
        self._engine.check_writable()
        self._answer(command.answer)

    def _publish(self, command: Publish) -> None:
        if not self.rights.publish.may(command.run.topic):
            raise self.rights.refusal(PUBLISH, command.run.topic)
        account, share = self._account, None
        if account is not None and account.is_limited:
            share = account.share(command.run)
            account.check(share)
        exclude = None if command.echo else self._subscriber
        keys: list[int] | None = None
        if command.once:
            keys = self._without_repeats(command)
            if not keys:
                self._repeated(command)
                return
            if account is not None and share is not None:
                share = account.share(command.run)
        batch = self._broker.publish(command.run, PublishReceipt(self, command), exclude)
        self._meter.messages_in += len(command.run.payloads)
        if self._broker.fan_outs:
            self._wait_for_fan_out(command.run.topic)
        if keys is not None:
            self._broker.remember(keys, batch)
        self._published = batch.end
        if account is not None and share is not None:
            account.published(share, batch.end)
        if self._pace is not None:
            self._slow_down(self._pace.spent(len(command.run.payloads), command.run.size))
        if command.answer:
            self._engine.hurry()
        if self._engine.congested and not self._waiting_for_log:
            self._waiting_for_log = True
            self._outlet.pause(LOG)
            self._engine.when_relieved(self._relieved)
        if exclude is not None:
            exclude.skip(batch)
            if exclude.overcommitted:
                self._outlet.pause(SUBSCRIPTIONS)

    def _slow_down(self, seconds: float) -> None:
        """It publishes faster than it may: do not read from it for so long."""
        if seconds > 0:
            self._outlet.pause(RATE)
            asyncio.get_running_loop().call_later(seconds, self._outlet.resume, RATE)

    def _without_repeats(self, command: Publish) -> list[int]:
        """Take out of a command what was accepted before. The keys of what is left."""
        keys = keys_of(command.run)
        if not command.again:
            self._resent.release(command.once)
            return keys
        fresh = self._resent.add(command.once, keys)
        if len(fresh) < len(keys):
            payloads = list(command.run.payloads)
            command.run = command.run.like([payloads[place] for place in fresh])
        return [keys[place] for place in fresh]

    def _repeated(self, command: Publish) -> None:
        """Nothing is left to store: the answer follows by itself. What this repeats may not be
        durable yet, and is somewhere before the end."""
        self._published = self._engine.end
        self._engine.when_durable(self._engine.end, partial(self.settled, command))
        self._engine.hurry()

    def _wait_for_fan_out(self, topic: str) -> None:
        fan_out = self._broker.fan_outs.get(topic)
        if fan_out is not None:
            self._outlet.pause(FAN_OUT)
            fan_out.when_done(self._fanned_out)

    def _fanned_out(self) -> None:
        self._outlet.resume(FAN_OUT)

    def _relieved(self) -> None:
        self._waiting_for_log = False
        self._outlet.resume(LOG)

    def settled(self, command: Publish, error: LogUnavailable | None) -> None:
        if self._left:
            return
        if error is not None:
            self._published = 0  # that offset will be another batch's
            self._refuse(command, error)
        elif command.answer:
            self._outlet.respond(command.answer)

    def _subscribe(self, command: Subscribe) -> None:
        subscriber = self._subscriber
        if subscriber is not None and command.key in subscriber.subscriptions:
            raise Refusal(Code.ALREADY_EXISTS, f"already subscribed: {' '.join(command.key)}")
        self._check_subscriptions(subscriber, command)
        allowed = self.rights.subscribe if command.durable is None else self.rights.replay
        if not allowed.may_some(command.filter):
            raise self.rights.refusal(SUBSCRIBE, command.filter.text)
        self._broker.check(command.filter)
        if subscriber is None:
            name = self._durable_name(command)
            subscriber = self._subscriber = self._broker.subscriber(self, self._outlet, name)
        since = 0 if command.durable else self._engine.end
        subscription: OwnedSubscription[Cursor] = OwnedSubscription(
            command.key, command.filter, subscriber, since, allowed
        )
        self._broker.add(subscription)
        if command.durable is None and self._published <= self._engine.watermark:
            self._answer(command.answer)
            return
        subscriber.hold()  # deliveries must not overtake the answer
        begin = partial(self._in_turn, partial(self._begin, subscriber, command.answer))
        if command.durable is not None:
            self.name = command.known_as or command.durable
            if self._broker.resume(subscriber, command):
                self._begin_when_saved(begin)
                return
        begin()

    def _check_subscriptions(self, subscriber: Subscriber | None, command: Subscribe) -> None:
        if subscriber is None:
            return
        most = self._quotas.subscriptions
        if len(subscriber.subscriptions) >= most:
            sentence = f"a client may have {most} subscriptions"
            raise OverQuota(Code.TOO_LARGE, "subscriptions", sentence)
        most = self._quotas.patterns
        if isinstance(command.filter, RegexFilter) and subscriber.patterns >= most:
            raise OverQuota(Code.TOO_LARGE, "patterns", f"a client may have {most} patterns")

    def _durable_name(self, command: Subscribe) -> str | None:
        """What its position is remembered under. A name belongs to whoever uses it: two users may
        have the same one, and neither can take the other's place."""
        if command.durable is None or self.rights.principal.kind in (ANONYMOUS, LOCAL):
            return command.durable
        return f"{self.rights.principal}/{command.durable}"

    def _begin(self, subscriber: Subscriber, answer: bytes) -> None:
        if answer:
            self._outlet.respond(answer)
        subscriber.release()

    def _unsubscribe(self, command: Unsubscribe) -> None:
        subscriptions = self._subscriber.subscriptions if self._subscriber else {}
        if command.key not in subscriptions:
            raise Refusal(Code.NOT_FOUND, f"not subscribed: {' '.join(command.key)}")
        self._broker.drop(subscriptions[command.key])
        self._answer(command.answer)

    def _consume(self, command: Consume) -> None:
        known = command.key in self._consumers
        most = self._quotas.subscriptions
        if not known and len(self._consumers) >= most:
            raise OverQuota(Code.TOO_LARGE, "subscriptions", f"a client may consume {most} queues")
        if not known:
            self._broker.owners.check(command.queue, self.rights)
            self._broker.unused.check(command.queue)
            queue = self._broker.queue_for(command.queue, self.rights)
            if queue.is_unsaved:
                self._begin_when_saved(partial(self._begin_to_consume, command))
                return
            self._begin_to_consume(command)
        else:
            self._answer(command.answer)

    def _begin_to_consume(self, command: Consume) -> None:
        self._answer(command.answer)
        queue, consumer = self._broker.consume(command, self._outlet, self.rights)
        queue.is_unsaved = False
        self._consumers[command.key] = queue, consumer
        queue.start(consumer)

    def _begin_when_saved(self, begin: Callable[[], None]) -> None:
        """What the client is told to have must still be there after a crash."""
        self._outlet.pause(SAVING)
        self._engine.notes.when_saved(partial(self._saved, begin))

    def _saved(self, begin: Callable[[], None], error: LogUnavailable | None) -> None:
        if self._left:
            return
        if error is None:
            begin()
        else:
            self._outlet.dismiss(error)
        self._outlet.resume(SAVING)

    def _acknowledge(self, command: Acknowledge) -> None:
        found = self._consumers.get(command.key)
        if found is not None:
            queue, consumer = found
            queue.acknowledge(consumer, command.offsets)
            self._unblock()

    def _identify(self, command: Identify) -> None:
        claim, gate, me = command.claim, self._broker.gate, self.rights.principal
        if claim is None and gate.is_user(command.name) and me.name != command.name:
            raise Refusal(
                Code.NOT_PERMITTED, f"{command.name} is a user, and has to give a password"
            )
        if claim is None or (
            # Where nobody has to log in, a password of nobody proves nothing and does no harm.
            isinstance(claim, Password) and me.kind == ANONYMOUS and not gate.is_user(claim.user)
        ):
            self._identified(command)
            return
        self._logging_in = True
        gate.admit(claim, self._outlet.address, partial(self._admitted, command))
        if self._logging_in:  # it takes a moment, and what comes behind it has to wait
            self._outlet.pause(LOGIN)

    def _admitted(self, command: Identify, found: Rights | Refusal) -> None:
        self._logging_in = False
        try:
            if self._left:
                return
            if isinstance(found, Refusal):
                raise found
            if found is not self.rights:
                self._become(found)
            self._identified(command)
        except Refusal as error:
            self._refuse(command, error)
        finally:
            self._outlet.resume(LOGIN)

    def _become(self, rights: Rights) -> None:
        if self.subscriptions:
            raise Refusal(Code.NOT_PERMITTED, "log in before you subscribe")
        accounts = self._broker.accounts
        account = accounts.of(rights)
        accounts.joined(account, rights.principal)
        accounts.left(self._account)
        self.rights, self._account, self._pace = rights, account, accounts.pace(account)

    def _identified(self, command: Identify) -> None:
        if self.rights.principal is NOBODY:
            raise self.rights.refusal(SUBSCRIBE, "")
        self.name = command.name
        if command.sole:
            self._broker.claim(command.sole, self)
            self._sole = True
        self._answer(command.answer)

    def _respond(self, command: Respond) -> None:
        self._answer(command.answer)

    def _confirm(self, command: Confirm) -> None:
        if self._subscriber is not None:
            self._subscriber.confirm(command.offset)

    def _close(self, command: Close) -> None:
        self._in_turn(partial(self._outlet.close, command.answer, command.reason))

    def _answer(self, answer: bytes) -> None:
        if answer:
            self._in_turn(partial(self._outlet.respond, answer))

    def _in_turn(self, act: Callable[[], None]) -> None:
        """Answers keep the order of the requests: after what was published before is settled."""
        if self._published <= self._engine.watermark:
            act()
        else:
            self._engine.when_durable(self._published, lambda _: None if self._left else act())
            self._engine.hurry()

    def _refuse(self, command: Command, error: Refusal) -> None:
        if isinstance(command, Publish) and command.once:
            self._resent.decline(command.once, keys_of(command.run))
        self._in_turn(partial(self._outlet.refuse, command, error))


_HANDLERS: dict[type, Callable[[Peer, Any], None]] = {
    Advertise: Peer._advertise,
    Subscribe: Peer._subscribe,
    Unsubscribe: Peer._unsubscribe,
    Consume: Peer._consume,
    Acknowledge: Peer._acknowledge,
    Identify: Peer._identify,
    Respond: Peer._respond,
    Confirm: Peer._confirm,
    Close: Peer._close,
}
