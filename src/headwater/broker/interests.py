"""What a connection takes messages from, for those who look at it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.broker.subscriber import Subscriber
from headwater.log.engine import Engine

if TYPE_CHECKING:
    from headwater.broker.queues.consumer import Consumer
    from headwater.broker.queues.queue import Queue


@dataclass(frozen=True, slots=True)
class Interest:
    """One subscription, or one queue that is consumed."""

    key: str  # what the client calls it
    filter: str  # which topics
    durable: str | None  # the name that the broker remembers its position under
    position: int
    lag: int


def of_subscriber(subscriber: Subscriber, engine: Engine) -> list[Interest]:
    lag = engine.end - subscriber.position if subscriber.behind else 0
    return [
        Interest(_shown(each.key), each.filter.text, subscriber.name, subscriber.position, lag)
        for each in subscriber.subscriptions.values()
    ]


def of_consumers(consumers: "Iterable[tuple[Queue, Consumer]]", engine: Engine) -> list[Interest]:
    found = []
    for queue, consumer in consumers:
        spec, position = queue.spec, queue.position_of(consumer)
        text = " ".join(each.text for each in spec.filters)
        lag = engine.watermark - position
        found.append(Interest(_shown(consumer.key), text, spec.name, position, lag))
    return found


def _shown(key: tuple[str, str]) -> str:
    return " ".join(filter(None, key))
