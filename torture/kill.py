"""Kill the broker under load, again and again, and account for every message.

Publishers send numbered messages and note which of them were acknowledged. A durable subscriber
follows along. The broker is killed with SIGKILL at a random moment and started again, for some
cycles. Then the log is read and has to agree:

- every acknowledged message is there, in its publisher's order;
- no message is there twice;
- the durable subscriber has received every message that is there.
"""

import contextlib
import random
import re
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from headwater.protocols.base import Delivered, Pinged
from headwater.protocols.bpsp import codec as bpsp
from headwater.protocols.psmb import codec as psmb
from tests.e2e.process import BrokerProcess, Wire, eventually
from torture.log import stored_payloads
from torture.verdict import Verdict, faults_about, faults_of

TOPIC = "torture/kill"
#: It is sent when everyone else has finished.
LAST = b"last.0."
PAYLOAD = re.compile(rb"(\w+)\.(\d+)\.")
ANSWER_SECONDS = 120.0


@dataclass
class Publisher:
    """Sends numbered messages over one connection at a time until it is told to stop."""

    name: str
    protocol: str
    broker: BrokerProcess
    sent: int = 0
    acknowledged: set[int] = field(default_factory=set)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError, EOFError):
                self._publish(stop)
            time.sleep(0.01)  # the broker is away

    def _publish(self, stop: threading.Event) -> None:
        publish = self._by_psmb if self.protocol == "psmb" else self._by_bpsp
        wire = self.broker.publisher(TOPIC) if self.protocol == "psmb" else self.broker.bpsp()
        # Patient: what is given up here, the broker might store behind what comes after it.
        wire.socket.settimeout(ANSWER_SECONDS)
        with contextlib.closing(wire):
            while not stop.is_set():
                numbers = range(self.sent, self.sent + random.choice((1, 1, 10, 500)))
                self.sent = numbers.stop  # whatever happens, a number is used once
                publish(wire, [self._payload(number) for number in numbers])
                self.acknowledged.update(numbers)

    def _payload(self, number: int) -> bytes:
        return b"%s.%d." % (self.name.encode(), number) + b"x" * random.randrange(300)

    def acknowledged_keys(self) -> set[bytes]:
        return {b"%s.%d." % (self.name.encode(), number) for number in self.acknowledged}

    @staticmethod
    def _by_psmb(wire: Wire, payloads: list[bytes]) -> None:
        wire.messages(*payloads)

    @staticmethod
    def _by_bpsp(wire: Wire, payloads: list[bytes]) -> None:
        headers = bpsp.format_headers((("x-topic", TOPIC),))
        wire.send(b"".join([bpsp.frame(bpsp.PUB, headers, p, bpsp.ACK) for p in payloads]))
        for _ in payloads:
            headers_size, opcode, _, data_size = struct.unpack(">HBBI", wire.read(8))
            wire.read(headers_size + data_size)
            if opcode != bpsp.OK:
                raise EOFError("refused")  # the broker is going down


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


def torture(directory: Path, cycles: int, seconds: float) -> Verdict:
    broker = BrokerProcess(directory / "data", HEADWATER_LOG_SEGMENT_BYTES="1MiB").start()
    broker.keep_ports()  # clients try all the time, and must not reach a stranger meanwhile
    publishers = [Publisher(f"{p}{n}", p, broker) for p in ("psmb", "bpsp") for n in range(3)]
    subscriber = Subscriber(broker)
    enough, stop = threading.Event(), threading.Event()
    publishing = [threading.Thread(target=each.run, args=(enough,)) for each in publishers]
    subscribing = threading.Thread(target=subscriber.run, args=(stop,))
    for worker in (*publishing, subscribing):
        worker.start()
    try:
        for _ in range(cycles):
            time.sleep(random.uniform(0.1, 1.0) * seconds)
            broker.kill()
            broker.start()
        time.sleep(seconds)
        enough.set()  # first: a subscriber that shares a busy machine with them may never catch up
        for worker in publishing:
            worker.join()
        _catch_up(broker, subscriber)
        stop.set()
        subscribing.join()
        faults = faults_of(broker, broker.stop())
    finally:
        enough.set()
        stop.set()
        for worker in (*publishing, subscribing):
            worker.join()
        broker.__exit__(None, None, None)
    stored = [_key(payload) for payload in stored_payloads(directory / "data")]
    return _verdict(cycles, stored, publishers, subscriber, faults)


def _catch_up(broker: BrokerProcess, subscriber: Subscriber) -> None:
    """Until the subscriber has a last message, behind which nothing comes."""
    with contextlib.closing(broker.publisher(TOPIC)) as wire:
        wire.messages(LAST)
    for _ in eventually(100):
        if subscriber.received[LAST]:
            break


def _verdict(
    cycles: int,
    stored: list[bytes],
    publishers: list[Publisher],
    subscriber: Subscriber,
    faults: tuple[str, ...],
) -> Verdict:
    """Compare what is stored with what publishers and the subscriber know."""
    acknowledged = {key for publisher in publishers for key in publisher.acknowledged_keys()}
    lost, missed = acknowledged - set(stored), set(stored) - set(subscriber.received)
    twice = [key for key, times in Counter(stored).items() if times > 1]
    unordered = [each.name for each in publishers if not _is_ordered(each, stored)]
    return Verdict(
        kills={"broker": cycles},
        sent=sum(publisher.sent for publisher in publishers),
        acknowledged=len(acknowledged),
        found=len(stored) - stored.count(LAST),
        lost=len(lost | missed),
        twice=len(twice),
        faults=faults
        + faults_about(
            acknowledged_and_lost=sorted(lost),
            stored_and_missed_by_the_durable_subscriber=sorted(missed),
            stored_twice=sorted(twice),
            publishers_whose_messages_are_out_of_order=unordered,
        ),
    )


def _is_ordered(publisher: Publisher, stored: list[bytes]) -> bool:
    prefix = publisher.name.encode() + b"."
    numbers = [int(key.split(b".")[1]) for key in stored if key.startswith(prefix)]
    return numbers == sorted(numbers)
