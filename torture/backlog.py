"""A backlog: more messages than a broker keeps in memory, so that who takes them reads the log."""

import contextlib
from random import Random

from tests.e2e.process import BrokerProcess

#: As BMTP's clients see it, it is channel 1.
TOPIC = "bmtp/1"
#: As those of Prism see it.
KEY = "bmtp.1"
#: The broker keeps 8 MiB, and sockets hold some more.
BYTES = 20 << 20
#: Messages are not small: it is the broker that is to work, not its clients.
MOST_MESSAGE_BYTES = 32 << 10
#: Each publish is answered before the next. What is published at once is stored at once, and a
#: segment is never too small for that: with many, there would be no more segments than the broker
#: keeps open, and none to be opened by those who read.
AT_ONCE = 10


def publish(broker: BrokerProcess, chance: Random) -> set[bytes]:
    """Returns the keys of what is durable then."""
    keys: set[bytes] = set()
    size = 0
    with contextlib.closing(broker.publisher(TOPIC)) as wire:
        while size < BYTES:
            numbers = range(len(keys), len(keys) + AT_ONCE)
            filler = [b"x" * chance.randrange(MOST_MESSAGE_BYTES) for _ in numbers]
            wire.messages(*[b"b%d " % n + x for n, x in zip(numbers, filler, strict=True)])
            keys.update(b"b%d" % number for number in numbers)
            size += sum(map(len, filler))
    return keys


def key_of(payload: bytes) -> bytes:
    """What is different in each message."""
    return payload.partition(b" ")[0]
