"""BPSP over real sockets: what a client sees."""

import os
import struct
from contextlib import closing

import pytest

from headwater.protocols.bpsp import codec as bpsp
from headwater.protocols.psmb import codec as psmb
from tests.e2e.process import BpspWire, BrokerProcess, eventually


def next_after(broker: BrokerProcess, wire: BpspWire, topic: str) -> bool:
    """Whether nothing is under way to a subscriber: a message that is published now is the next
    that it gets."""
    assert broker.bpsp().publish(topic, b"the next one") == 200
    return wire.frame()[2] == b"the next one"


def test_info_comes_first_and_once(shared_broker: BrokerProcess) -> None:
    wire = BpspWire(shared_broker.ports["bpsp"])
    wire.request(bpsp.CONNECT, flag=0)  # deployed clients do not wait for INFO
    opcode, headers, _ = wire.frame()
    assert opcode == bpsp.INFO
    assert headers["x-server"] == "headwater"
    wire.subscribe("a")  # the next frame is its answer
    wire.close()


@pytest.mark.both_loops
def test_a_message_carries_its_subscription_its_topic_and_its_headers(
    broker: BrokerProcess,
) -> None:
    subscriber, publisher = broker.bpsp(), broker.bpsp()
    subscriber.subscribe("sensors/+", tag="s1")
    publisher.request(bpsp.CONNECT, x_usename="ann", x_password="secret")
    opcode, headers, _ = publisher.frame()
    assert (opcode, headers) == (bpsp.OK, {"x-status-code": "200", "x-usename": "ann"})
    publisher.request(bpsp.PUB, b"21.5", x_topic="sensors/a", content_type="text")
    assert publisher.status() == 200
    opcode, headers, data = subscriber.frame()
    assert (opcode, data) == (bpsp.MSG, b"21.5")
    assert headers == {
        "x-topic": "sensors/+",
        "x-origin-topic": "sensors/a",
        "x-sub-tag": "s1",
        "x-from": "ann",
        "content-type": "text",
    }


def test_two_matching_subscriptions_mean_two_messages(shared_broker: BrokerProcess) -> None:
    wire = shared_broker.bpsp()
    wire.subscribe("a/+", tag="x")
    wire.subscribe("a/*", tag="y")
    assert shared_broker.bpsp().publish("a/b", b"!") == 200
    got = [wire.frame()[1]["x-sub-tag"] for _ in range(2)]
    assert sorted(got) == ["x", "y"]
    assert next_after(shared_broker, wire, "a/b")


def test_unsubscribe_stops_one_subscription(shared_broker: BrokerProcess) -> None:
    wire, publisher = shared_broker.bpsp(), shared_broker.bpsp()
    wire.subscribe("a", tag="x")
    wire.subscribe("a", tag="y")
    wire.request(bpsp.UNSUB, x_topic="a", x_sub_tag="x")
    assert wire.status() == 200
    publisher.publish("a", b"1")
    assert wire.frame()[1]["x-sub-tag"] == "y"
    assert next_after(shared_broker, wire, "a")


def test_errors_have_a_status(shared_broker: BrokerProcess) -> None:
    wire = shared_broker.bpsp()
    wire.subscribe("a")
    for opcode, topic, status in (
        (bpsp.SUB, "a", 409),
        (bpsp.UNSUB, "b", 404),
        (bpsp.SUB, "a/*/b", 400),
        (bpsp.PUB, "a/+", 400),
        (bpsp.PUB, "", 400),
    ):
        wire.request(opcode, x_topic=topic)
        assert wire.status() == status
    wire.send(bpsp.frame(bpsp.PUB, b'"x-topic"a"', b"", bpsp.ACK))
    assert wire.status() == 400
    wire.send(bpsp.frame(99))
    assert wire.status() == 405
    assert wire.rest() == b""


def test_an_own_message_comes_back_only_on_request(shared_broker: BrokerProcess) -> None:
    wire = shared_broker.bpsp()
    wire.subscribe("a")
    assert wire.publish("a", b"mine") == 200
    assert next_after(shared_broker, wire, "a")
    wire.request(bpsp.PUB, b"echoed", flag=bpsp.ECHO, x_topic="a")
    assert wire.frame()[2] == b"echoed"


@pytest.mark.both_loops
def test_answers_keep_the_order_of_the_requests(broker: BrokerProcess) -> None:
    wire = broker.bpsp()
    for number in range(200):
        wire.request(bpsp.PUB, os.urandom(1000), x_topic="t", x_id=f"p{number}")
        wire.request(bpsp.SUB, x_topic="s", x_sub_tag=str(number), x_id=f"s{number}")
        wire.request(bpsp.SUB, x_topic="a/*/b", x_id=f"e{number}")
    got = [wire.frame()[1]["x-id"] for _ in range(600)]
    assert got == [f"{kind}{number}" for number in range(200) for kind in "pse"]


def test_protocols_reach_each_other(shared_broker: BrokerProcess) -> None:
    by_bpsp, by_psmb = shared_broker.bpsp(), shared_broker.subscriber("sensors/.*")
    by_bpsp.subscribe("sensors/+")
    shared_broker.publisher("sensors/a").messages(b"\xff\x00binary", b"")
    assert [by_bpsp.frame()[2] for _ in range(2)] == [b"\xff\x00binary", b""]
    by_psmb.expect_messages(b"\xff\x00binary", b"")
    shared_broker.bpsp().publish("sensors/ö", b"text")
    assert by_bpsp.frame()[1]["x-origin-topic"] == "sensors/ö"
    by_psmb.expect(psmb.encode_messages([b"text"]))


def test_a_client_that_never_speaks_is_told_and_closed(broker: BrokerProcess) -> None:
    broker.stop()
    # Long enough for the one that talks to have spoken by then.
    broker.set(HEADWATER_LIMITS_HANDSHAKE_SECONDS="5")
    broker.start()
    talking, silent = broker.bpsp(), broker.bpsp()
    talking.subscribe("a")
    assert silent.status() == 503
    assert silent.rest() == b""  # and the time of the other, who came first, is over as well
    assert talking.publish("a", b"x") == 200


def test_stopping_is_told(broker: BrokerProcess) -> None:
    wire = broker.bpsp()
    wire.subscribe("a")
    assert broker.stop() == 0
    assert wire.status() == 503
    broker.start()


def test_the_connection_limit_turns_away_with_a_reason(broker: BrokerProcess) -> None:
    broker.stop()
    broker.set(HEADWATER_LIMITS_CONNECTIONS="2")
    broker.start()
    first, _ = broker.bpsp(), broker.bpsp()
    third = BpspWire(broker.ports["bpsp"])
    assert third.status() == 503
    assert third.rest() == b""
    third.close()
    first.close()
    for _ in eventually():  # until the broker has noticed
        with closing(BpspWire(broker.ports["bpsp"])) as fourth:
            if fourth.frame()[0] == bpsp.INFO:
                fourth.subscribe("a")
                break


def test_a_client_that_sends_too_much_can_send_all_of_it_and_read_why(
    shared_broker: BrokerProcess,
) -> None:
    wire = shared_broker.bpsp()
    wire.send(struct.pack(">HBBI", 0, bpsp.PUB, 0, 1 << 30) + bytes(4 << 20))
    assert wire.status() == 413
    assert wire.socket.recv(1) == b""


def test_a_client_can_have_too_many_subscriptions(broker: BrokerProcess) -> None:
    broker.stop()
    broker.set(HEADWATER_LIMITS_SUBSCRIPTIONS="3")
    broker.start()
    wire = broker.bpsp()
    for tag in "abc":
        wire.subscribe("t", tag)
    wire.request(bpsp.SUB, x_topic="t", x_sub_tag="d")
    assert wire.status() == 413
    wire.request(bpsp.UNSUB, x_topic="t", x_sub_tag="a")
    assert wire.status() == 200
    wire.subscribe("t", "d")


def test_many_kinds_of_subscribers_do_not_multiply_the_memory(broker: BrokerProcess) -> None:
    """Each gets bytes of its own, and none of these may stay behind in memory."""
    publisher = broker.publisher("t")
    publisher.messages(*[os.urandom(1000)] * 20_000)
    wires = [broker.bpsp() for _ in range(30)]
    for number, wire in enumerate(wires):
        wire.subscribe("t", tag=str(number))
    before = broker.memory()
    for _ in range(10):
        publisher.messages(*[os.urandom(1000)] * 500)
        for wire in wires:
            assert [len(wire.frame()[2]) for _ in range(500)] == [1000] * 500
    assert broker.memory() - before < 60 << 20  # not 30 times the 5 MB that were published
