"""A slow subscriber costs no memory, loses nothing and delays nobody."""

import os
import threading
from pathlib import Path

import pytest

from headwater.control import call
from headwater.protocols.bpsp import codec as bpsp
from headwater.protocols.psmb import codec as psmb
from tests.e2e.process import PATIENCE, BrokerProcess, eventually

MEGABYTE = 1 << 20


def _flood(broker: BrokerProcess, topic: str, megabytes: int) -> list[bytes]:
    """Publish unique messages; returns them."""
    publisher = broker.publisher(topic)
    sent: list[bytes] = []
    for number in range(megabytes):
        chunk = [f"{number}.{i}.".encode() + os.urandom(1000) for i in range(1024)]
        publisher.messages(*chunk)
        sent += chunk
    return sent


def test_one_that_never_reads_costs_a_buffer(broker: BrokerProcess) -> None:
    broker.stop()
    broker.set(HEADWATER_LOG_SEGMENT_BYTES="4GiB")  # sealing takes memory whoever reads
    broker.start()
    _flood(broker, "warm up", 80)
    stalled = broker.subscriber("flood")
    before = broker.memory()
    _flood(broker, "flood", 80)
    # One output buffer, and what the allocator makes of it; not the 80 MiB it did not read.
    assert broker.memory() - before < 30 * MEGABYTE
    stalled.close()


@pytest.mark.both_loops
def test_one_that_reads_late_gets_everything_in_order(broker: BrokerProcess) -> None:
    late, latest = broker.subscriber("flood"), broker.bpsp()
    latest.subscribe("flood")
    sent = _flood(broker, "flood", 40)  # more than is kept in memory
    late.expect(psmb.encode_messages(sent))
    assert [latest.frame()[2] for _ in sent] == sent
    # ... and it is live again.
    broker.publisher("flood").messages(b"now")
    late.expect_messages(b"now")
    assert latest.frame()[2] == b"now"


def test_others_are_not_delayed(broker: BrokerProcess) -> None:
    broker.subscriber("flood")  # never reads
    flood = threading.Thread(target=_flood, args=(broker, "flood", 20))
    flood.start()
    publisher, subscriber = broker.publisher("quick"), broker.subscriber("quick")
    # A broker that waits for the one who never reads waits for ever, and no answer comes.
    while flood.is_alive():
        publisher.send(b"MSG\0\0\0\0\0\0\0\x01!")
        subscriber.expect(b"MSG\0\0\0\0\0\0\0\x01!")
    flood.join()
    publisher.messages(b"?")
    subscriber.expect_messages(b"?")


def test_what_was_published_before_a_subscription_is_not_delivered_to_it(
    broker: BrokerProcess,
) -> None:
    """Also not when the connection is behind, and so reads the log from before it."""
    wire = broker.bpsp()
    wire.subscribe("flood")
    sent = _flood(broker, "flood", 8)
    broker.publisher("other").messages(b"before")
    wire.request(bpsp.SUB, x_topic="other")
    for _ in eventually():  # its answer comes behind all that was not read yet
        if call(broker.data, "subscriptions.list", q="other")["total"] == 1:
            break
    broker.publisher("other").messages(b"after")
    got = [wire.frame() for _ in range(len(sent) + 2)]
    assert [data for opcode, _, data in got if opcode == bpsp.MSG] == [*sent, b"after"]


def test_an_own_message_does_not_come_back_to_one_that_is_behind(broker: BrokerProcess) -> None:
    wire, other = broker.bpsp(), broker.bpsp()
    wire.subscribe("t")
    big = os.urandom(256 * 1024)
    for number in range(64):
        assert other.publish("t", b"%d other" % number + big) == 200
        wire.request(bpsp.PUB, b"%d own" % number, flag=0, x_topic="t")
    other.publish("t", b"end")
    got: list[bytes] = []
    while not got or got[-1] != b"end":
        got.append(wire.frame()[2][:10].partition(b" other")[0])
    assert got == [b"%d" % number for number in range(64)] + [b"end"]


def test_a_publisher_that_does_not_read_its_answers_is_not_read_from(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", HEADWATER_LIMITS_OUTPUT_BUFFER_BYTES="64KiB") as broker:
        wire = broker.bpsp()
        request = bpsp.frame(bpsp.PUB, bpsp.format_headers((("x-topic", "t"),)), b"", bpsp.ACK)
        before = broker.memory()
        wire.socket.settimeout(1.0)
        sent = 0
        try:
            while sent < 200 * MEGABYTE:
                sent += wire.socket.send(request * 1000)
        except TimeoutError:
            pass  # it is not read from any more
        assert sent < 100 * MEGABYTE
        assert broker.memory() - before < 64 * MEGABYTE
        wire.socket.settimeout(PATIENCE)
        answer = bpsp.frame(bpsp.OK, b'"x-status-code""200";"x-topic""t";')
        whole = sent // len(request)
        wire.expect(answer * (whole // 2))  # and goes on when it does


def test_retention_that_overtakes_a_subscriber_is_told(tmp_path: Path) -> None:
    settings = {
        "HEADWATER_LOG_SEGMENT_BYTES": "1MiB",
        "HEADWATER_LOG_RETENTION_BYTES": "4MiB",
        "HEADWATER_LIMITS_OUTPUT_BUFFER_BYTES": "64KiB",
    }
    with BrokerProcess(tmp_path / "data", **settings) as broker:
        late = broker.subscriber("flood")
        sent = _flood(broker, "flood", 48)
        broker.publisher("flood").messages(b"end")
        for _ in eventually():  # until retention has dropped all that it will
            if call(broker.data, "log.show")["bytes"] <= 4 * MEGABYTE:
                break
        got = [late.message()]
        while got[-1] != b"end":
            got.append(late.message())
        # A beginning, a gap, and the end: nothing out of order, nothing twice.
        assert len(got) < len(sent)
        position = -1
        for payload in got[:-1]:
            found = sent.index(payload, position + 1)
            position = found
        assert broker.stop() == 0
        assert "retention overtook a subscriber" in broker.log
