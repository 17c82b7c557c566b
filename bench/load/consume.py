"""Consumers of queues: how soon one gets its first message, and how soon what a lost one held."""

import socket
import struct
import time

from bench.crew import Stages
from bench.load.pairs import Looped
from bench.wire import WIRES, Aim, connect

_READ_BYTES = 256 * 1024


class Consumer:
    """One connection to a queue, and what it has got."""

    def __init__(self, aim: Aim) -> None:
        self._wire = WIRES[aim.wire]
        self._topic = aim.topic
        self._link = connect(aim.address)
        self._unread = b""
        self.count = 0

    def begin(self) -> None:
        """Ask for messages, without waiting for a confirmation: there are some."""
        self._wire.open_publisher(self._link, self._topic)
        self._link.sendall(self._wire.consume(self._topic))

    def begin_idle(self) -> None:
        """Ask for messages, while there are none."""
        self._wire.open_subscriber(self._link, self._topic)

    def take(self, count: int) -> None:
        """Receive until there were so many messages, and hold them."""
        while self.count < count:
            data = self._link.recv(_READ_BYTES)
            if not data:
                raise ConnectionError("the broker closed a consumer's connection")
            self._unread += data
            found, used = self._wire.deliveries(self._unread)
            self.count += len(found)
            self._unread = self._unread[used:]

    def acknowledge(self, count: int) -> None:
        """The first messages that it got."""
        self._link.sendall(self._wire.receipts(0, count))

    def vanish(self) -> None:
        """As if its process or its machine had gone: without a goodbye, and with a reset."""
        self._link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._link.close()


def first_message(aim: Aim) -> Stages:
    """A new consumer of a queue in which messages wait: from the connection to the first one."""
    yield "ready"
    started = time.monotonic_ns()
    consumer = Consumer(aim)
    consumer.begin()
    consumer.take(1)
    arrived = time.monotonic_ns()
    yield Looped(1, started, arrived, (arrived - started,))
    return None


def lose(aim: Aim, rounds: int, held: int) -> Stages:
    """Consumers that are lost, one after the other, each with messages that it has not
    acknowledged: from the loss to the first of them at the next consumer."""
    wire, publisher, holder = WIRES[aim.wire], connect(aim.address), Consumer(aim)
    wire.open_acked(publisher, aim.topic, 0)
    burst = wire.acked(aim.topic, wire.payloads(held, aim.payload_bytes), 0, 0)
    holder.begin_idle()
    yield "ready"
    taken, started = [0] * rounds, time.monotonic_ns()
    for i in range(rounds):
        publisher.sendall(burst.data)
        holder.take(holder.count + held)
        publisher.recv(_READ_BYTES)  # the answers; nobody counts them here
        heir = Consumer(aim)
        heir.begin_idle()
        before = time.monotonic_ns()
        holder.vanish()
        heir.take(1)
        taken[i] = time.monotonic_ns() - before
        heir.take(held)
        heir.acknowledge(held)
        holder = heir
    return Looped(rounds, started, time.monotonic_ns(), tuple(taken))
