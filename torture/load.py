"""Publishers and a durable subscriber, at work whatever happens to the broker.

Publishers send numbered messages and note which of them were acknowledged, and which refused. The
subscriber proves what it has read. When the broker has stopped, the log has to agree:

- every acknowledged message is there, in its publisher's order, and no refused one;
- no message is there twice;
- the durable subscriber has received every message that is there.
"""

import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Self

from headwater.protocols.base import Delivered, Pinged
from headwater.protocols.bpsp import codec as bpsp
from headwater.protocols.psmb import codec as psmb
from tests.e2e.process import BpspWire, BrokerProcess, Wire, eventually
from torture.log import stored_payloads
from torture.verdict import Verdict, faults_about

TOPIC = "torture/load"
#: It is sent when everyone else has finished.
LAST = b"last.0."
PAYLOAD = re.compile(rb"(\w+)\.(\d+)\.")
ANSWER_SECONDS = 120.0
CATCH_UP_SECONDS = 100.0


class TurnedAway(EOFError):
    """The broker ends, and says so."""


@dataclass
class Publisher:
    """Sends numbered messages over one connection at a time until it is told to stop."""

    name: str
    broker: BrokerProcess
    chance: Random
    sent: int = 0
    acknowledged: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError, EOFError), contextlib.closing(self.connect()) as wire:
                # Patient: what is given up here, the broker might store behind what comes after.
                wire.socket.settimeout(ANSWER_SECONDS)
                while not stop.is_set():
                    count = self.chance.choice((1, 1, 10, 500))
                    numbers = range(self.sent, self.sent + count)
                    self.sent = numbers.stop  # whatever happens, a number is used once
                    self.publish(wire, numbers)
            time.sleep(0.01)  # the broker is away

    def connect(self) -> Wire:
        raise NotImplementedError

    def publish(self, wire: Wire, numbers: range) -> None:
        raise NotImplementedError

    def payload(self, number: int) -> bytes:
        return self.key(number) + b"x" * self.chance.randrange(300)

    def key(self, number: int) -> bytes:
        return b"%s.%d." % (self.name.encode(), number)


class PsmbPublisher(Publisher):
    def connect(self) -> Wire:
        wire = self.broker.psmb()
        session = psmb.PsmbClientSession
        wire.send(session.hello() + session.publishing(TOPIC))
        wire.expect(b"OK\0\0\0\0\0")
        if (answer := wire.read(3)) != b"OK\0":
            assert answer == b"FAI", answer  # FAILED, and why
            raise TurnedAway
        return wire

    def publish(self, wire: Wire, numbers: range) -> None:
        wire.send(psmb.encode_messages([self.payload(number) for number in numbers]) + psmb.NOP)
        while (word := wire.read(3)) != b"NIL":
            if word == psmb.BYE:
                raise TurnedAway
            assert word == psmb.NOP, word
            wire.send(b"NIL")
        self.acknowledged.update(numbers)


class BpspPublisher(Publisher):
    def connect(self) -> Wire:
        wire = BpspWire(self.broker.ports["bpsp"])
        if wire.frame()[0] != bpsp.INFO:
            raise TurnedAway
        return wire

    def publish(self, wire: Wire, numbers: range) -> None:
        assert isinstance(wire, BpspWire)
        headers = bpsp.format_headers((("x-topic", TOPIC),))
        payloads = [self.payload(number) for number in numbers]
        wire.send(b"".join([bpsp.frame(bpsp.PUB, headers, p, bpsp.ACK) for p in payloads]))
        for number in numbers:
            (self.acknowledged if wire.status() == 200 else self.refused).add(number)


@dataclass
class Subscriber:
    """A durable subscriber that proves what it has read."""

    broker: BrokerProcess
    received: Counter[bytes] = field(default_factory=Counter)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError, EOFError):
                wire = self.broker.subscriber(re.escape(TOPIC), identity=1)
                with contextlib.closing(wire):
                    wire.socket.settimeout(0.5)
                    self._read(wire, stop)
            time.sleep(0.01)

    def _read(self, wire: Wire, stop: threading.Event) -> None:
        session = psmb.PsmbClientSession(1 << 30)
        list(session.receive(b"OK\0\0\0\0\0OK\0"))  # already read from the socket
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                data = wire.socket.recv(1 << 20)
                if not data:
                    return
                for event in session.receive(data):
                    if isinstance(event, Delivered):
                        self.received.update(_key(payload) for payload in event.payloads)
                    elif isinstance(event, Pinged):
                        wire.send(event.answer)


def _key(payload: bytes) -> bytes:
    found = PAYLOAD.match(payload)
    assert found is not None, payload
    return found.group()


class Load:
    """Three publishers of PSMB, three of BPSP, and the subscriber, in threads of their own."""

    def __init__(self, broker: BrokerProcess, chance: Random) -> None:
        self._broker = broker
        self._publishers = [
            kind(f"{name}{number}", broker, Random(chance.random()))
            for name, kind in (("psmb", PsmbPublisher), ("bpsp", BpspPublisher))
            for number in range(3)
        ]
        self._subscriber = Subscriber(broker)
        self._enough, self._stop = threading.Event(), threading.Event()
        self._publishing = [
            threading.Thread(target=each.run, args=(self._enough,)) for each in self._publishers
        ]
        self._subscribing = threading.Thread(target=self._subscriber.run, args=(self._stop,))

    def __enter__(self) -> Self:
        for worker in (*self._publishing, self._subscribing):
            worker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._enough.set()
        self._stop.set()
        for worker in (*self._publishing, self._subscribing):
            worker.join()

    def more(self, count: int) -> None:
        """Wait until so many more messages are acknowledged, and the subscriber gets on, too."""
        acknowledged, received = self._acknowledged(), self._subscriber.received.total()
        for _ in eventually(CATCH_UP_SECONDS):
            if (
                self._acknowledged() >= acknowledged + count
                and self._subscriber.received.total() > received
            ):
                return

    def _acknowledged(self) -> int:
        return sum(len(each.acknowledged) for each in self._publishers)

    def finish(self) -> None:
        """End when the subscriber has a last message, behind which nothing comes."""
        self._enough.set()  # first: a subscriber that shares a busy machine with them may never
        for worker in self._publishing:  # catch up
            worker.join()
        with contextlib.closing(self._broker.publisher(TOPIC)) as wire:
            wire.messages(LAST)
        for _ in eventually(CATCH_UP_SECONDS):
            if self._subscriber.received[LAST]:
                break
        self._stop.set()
        self._subscribing.join()

    def verdict(self, harm: Mapping[str, int], faults: tuple[str, ...]) -> Verdict:
        """Compare what is stored with what publishers and the subscriber know."""
        stored = [_key(payload) for payload in stored_payloads(self._broker.data)]
        publishers = self._publishers
        acknowledged = {each.key(n) for each in publishers for n in each.acknowledged}
        refused = {each.key(n) for each in publishers for n in each.refused}
        lost, missed = acknowledged - set(stored), set(stored) - set(self._subscriber.received)
        twice = [key for key, times in Counter(stored).items() if times > 1]
        return Verdict(
            harm=harm,
            sent=sum(publisher.sent for publisher in publishers),
            acknowledged=len(acknowledged),
            found=len(stored) - stored.count(LAST),
            lost=len(lost | missed),
            twice=len(twice),
            faults=faults
            + faults_about(
                acknowledged_and_lost=sorted(lost),
                refused_and_stored=sorted(refused & set(stored)),
                stored_and_missed_by_the_durable_subscriber=sorted(missed),
                stored_twice=sorted(twice),
                publishers_whose_messages_are_out_of_order=[
                    each.name for each in publishers if not _is_ordered(each, stored)
                ],
            ),
        )


def _is_ordered(publisher: Publisher, stored: list[bytes]) -> bool:
    prefix = publisher.name.encode() + b"."
    numbers = [int(key.split(b".")[1]) for key in stored if key.startswith(prefix)]
    return numbers == sorted(numbers)
