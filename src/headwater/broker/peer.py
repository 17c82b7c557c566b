"""A peer: one connection's standing in the broker, and one handler for each command."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.broker.router import Subscription
from headwater.broker.subscriber import Subscriber
from headwater.commands import (
    Advertise,
    Close,
    Command,
    Confirm,
    Identify,
    Outlet,
    Publish,
    Respond,
    Subscribe,
    Unsubscribe,
)
from headwater.errors import Code, LogUnavailable, Refusal

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

# Why a connection is not read from.
LOG = "the log is behind"
OWN = "its own subscriptions are behind"


class Peer:
    def __init__(self, broker: "Broker", outlet: Outlet) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._outlet = outlet
        self._subscriber: Subscriber | None = None
        self._published = 0  # the end of the last batch it published
        self._left = False
        self._waiting_for_log = False

    @property
    def position(self) -> int:
        """How far into the log this connection is."""
        return self._subscriber.position if self._subscriber else self._engine.end

    def handle(self, command: Command) -> None:
        try:
            _HANDLERS[type(command)](self, command)
        except Refusal as error:
            self._refuse(command, error)

    def drained(self) -> None:
        """The connection has sent all it had."""
        if self._subscriber is not None:
            self._subscriber.pump()
            if not self._subscriber.overcommitted:
                self._outlet.resume(OWN)

    def leave(self) -> None:
        """The connection is gone."""
        self._left = True
        if self._subscriber is not None:
            self._broker.remove(self._subscriber)

    def dismiss(self, error: Refusal) -> None:
        self._outlet.dismiss(error)

    def _advertise(self, command: Advertise) -> None:
        self._engine.check_writable()
        self._answer(command.answer)

    def _publish(self, command: Publish) -> None:
        exclude = None if command.echo else self._subscriber
        batch = self._broker.publish(command.run, partial(self._settled, command), exclude)
        self._published = batch.end
        if command.answer:
            self._engine.hurry()
        if self._engine.congested and not self._waiting_for_log:
            self._waiting_for_log = True
            self._outlet.pause(LOG)
            self._engine.when_relieved(self._relieved)
        if exclude is not None:
            exclude.skip(batch)
            if exclude.overcommitted:
                self._outlet.pause(OWN)

    def _relieved(self) -> None:
        self._waiting_for_log = False
        self._outlet.resume(LOG)

    def _settled(self, command: Publish, error: LogUnavailable | None) -> None:
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
        most = self._broker.most_subscriptions
        if subscriber is not None and len(subscriber.subscriptions) >= most:
            raise Refusal(Code.TOO_LARGE, f"a client may have {most} subscriptions")
        if subscriber is None:
            subscriber = self._subscriber = self._broker.subscriber(self, self._outlet, command)
        since = 0 if command.durable else self._engine.end
        subscription = Subscription(command.key, command.filter, subscriber, since)
        self._broker.add(subscription)
        self._answer(command.answer)
        if command.durable is not None:
            self._broker.resume(subscriber)

    def _unsubscribe(self, command: Unsubscribe) -> None:
        subscriptions = self._subscriber.subscriptions if self._subscriber else {}
        if command.key not in subscriptions:
            raise Refusal(Code.NOT_FOUND, f"not subscribed: {' '.join(command.key)}")
        self._broker.drop(subscriptions[command.key])
        self._answer(command.answer)

    def _identify(self, command: Identify) -> None:
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
        self._in_turn(partial(self._outlet.refuse, command, error))


_HANDLERS: dict[type, Callable[[Peer, Any], None]] = {
    Advertise: Peer._advertise,
    Publish: Peer._publish,
    Subscribe: Peer._subscribe,
    Unsubscribe: Peer._unsubscribe,
    Identify: Peer._identify,
    Respond: Peer._respond,
    Confirm: Peer._confirm,
    Close: Peer._close,
}
