"""PSMB over real sockets: what a client sees."""

import os
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest

from headwater.protocols.psmb import codec as psmb
from tests.e2e.process import BrokerProcess, eventually


@pytest.mark.both_loops
def test_a_message_reaches_a_subscriber_byte_for_byte(broker: BrokerProcess) -> None:
    subscriber = broker.subscriber("sensors/.*")
    publisher = broker.publisher("sensors/a")
    publisher.send(b"MSG\0\0\0\0\0\0\0\x0421.5")
    subscriber.expect(b"MSG\0\0\0\0\0\0\0\x0421.5")


def test_patterns_match_the_whole_topic(shared_broker: BrokerProcess) -> None:
    subscriber = shared_broker.subscriber("sensors")
    shared_broker.publisher("sensors/a").messages(b"no")
    shared_broker.publisher("sensors").messages(b"yes")
    subscriber.expect_messages(b"yes")


@pytest.mark.both_loops
def test_ten_thousand_messages_of_all_sizes_stay_in_order(broker: BrokerProcess) -> None:
    payloads = [os.urandom(size % 700) for size in range(10_000)] + [os.urandom(3_000_000)]
    subscriber = broker.subscriber("t")
    broker.publisher("t").messages(*payloads)
    subscriber.expect(psmb.encode_messages(payloads))


def test_nil_answers_a_publishers_nop(shared_broker: BrokerProcess) -> None:
    publisher = shared_broker.publisher("t")
    publisher.send(b"NOPNOP")
    publisher.expect(b"NILNIL")


def test_a_rejected_mode_leaves_room_for_another(shared_broker: BrokerProcess) -> None:
    wire = shared_broker.psmb()
    wire.send(psmb.PsmbClientSession.hello() + b"SUB\0\0\0\0(\0" + b"PUB\0" + b"PUBt\0")
    wire.expect(b"OK\0\0\0\0\0" + b"FAILED\0bad pattern: ")
    answer = b""
    while not answer.endswith(b"OK\0"):
        answer += wire.read(1)
    assert answer.count(b"FAILED\0") == 1  # the topic was empty, too
    wire.messages(b"works")


def test_a_new_subscriber_is_known_after_a_kill_right_behind_its_answer(tmp_path: Path) -> None:
    toml = '[psmb]\nnew_subscribers = "new"\n'
    with BrokerProcess(tmp_path / "data", toml=toml) as broker:
        broker.publisher("t").messages(b"before")
        for identity in range(1, 4):
            broker.subscriber("t", identity=identity)
            publisher = broker.publisher("t")
            publisher.messages(b"%d" % identity)
            broker.kill()
            broker.start()
            broker.subscriber("t", identity=identity).expect_messages(b"%d" % identity)


def test_history_begins_with_everything_and_goes_on_live(shared_broker: BrokerProcess) -> None:
    publisher = shared_broker.publisher("begins")
    publisher.messages(b"1", b"2")
    shared_broker.publisher("other").messages(b"not for us")
    subscriber = shared_broker.subscriber("begins", identity=11)
    subscriber.expect_messages(b"1", b"2")
    publisher.messages(b"3")
    subscriber.expect_messages(b"3")


def test_history_moves_on_proof_and_not_on_writing(shared_broker: BrokerProcess) -> None:
    publisher = shared_broker.publisher("moves")
    publisher.messages(b"1")
    first = shared_broker.subscriber("moves", identity=12)
    first.expect(psmb.encode_messages([b"1"]) + b"NOP")
    first.send(b"NIL")  # the proof for 1
    publisher.messages(b"2")
    first.expect(psmb.encode_messages([b"2"]) + b"NOP")
    first.send(b"NOP")
    first.expect(b"NIL")  # the proof for 1 has certainly been read; for 2 there is none
    first.close()
    second = shared_broker.subscriber("moves", identity=12)
    assert second.message() == b"2"


@pytest.mark.both_loops
def test_history_survives_kill_and_restart(broker: BrokerProcess) -> None:
    publisher = broker.publisher("t")
    publisher.messages(b"1")
    subscriber = broker.subscriber("t", identity=2**64 - 1)
    subscriber.expect(psmb.encode_messages([b"1"]) + b"NOP")
    subscriber.send(b"NIL")
    for _ in eventually():  # positions are on disk a moment later
        if broker.position(f"psmb/{2**64 - 1}/t") == 1:
            break
    publisher.messages(b"2")
    broker.kill()
    broker.start()
    assert broker.subscriber("t", identity=2**64 - 1).message() == b"2"


def test_a_second_connection_takes_over(shared_broker: BrokerProcess) -> None:
    first = shared_broker.subscriber("second", identity=13)
    second = shared_broker.subscriber("second", identity=13)
    assert first.rest() == b"BYE"
    shared_broker.publisher("second").messages(b"for the second")
    assert second.message() == b"for the second"


@pytest.mark.parametrize("version", [1, 2])
def test_bye_ends_the_connection(shared_broker: BrokerProcess, version: int) -> None:
    for wire in (
        shared_broker.publisher("t", version),
        shared_broker.subscriber("t", None, version),
    ):
        wire.send(b"BYE")
        assert wire.rest() == b""


def test_a_message_over_the_limit_ends_the_connection_before_it_arrives(
    shared_broker: BrokerProcess,
) -> None:
    publisher = shared_broker.publisher("t")
    before = shared_broker.memory()
    publisher.send(b"MSG" + struct.pack(">Q", 2**63))
    assert publisher.rest() == b"BYE"
    assert shared_broker.memory() - before < 16 << 20


@pytest.mark.both_loops
def test_stopping_says_bye_and_exits_cleanly(broker: BrokerProcess) -> None:
    wires = [broker.publisher("t"), broker.subscriber("t"), broker.subscriber("t", identity=1)]
    assert broker.stop() == 0  # one that waits for its clients waits for ever
    assert [wire.rest() for wire in wires] == [b"BYE"] * 3
    broker.start()


class TestKeepAlive:
    @staticmethod
    def broker(data: Path, seconds: float, misses: int) -> BrokerProcess:
        return BrokerProcess(
            data,
            HEADWATER_PSMB_KEEPALIVE_SECONDS=str(seconds),
            HEADWATER_PSMB_KEEPALIVE_MISSES=str(misses),
        )

    def test_a_silent_subscriber_is_asked_and_then_closed(self, tmp_path: Path) -> None:
        with self.broker(tmp_path / "data", 0.5, 2) as broker:
            subscriber = broker.subscriber("t")
            assert subscriber.rest() == b"NOPNOP"

    def test_one_that_answers_stays(self, tmp_path: Path) -> None:
        # It has seconds to answer, however busy the machine is, and is asked more often than one
        # that does not answer would be.
        misses = 30
        with self.broker(tmp_path / "data", 0.25, misses) as broker:
            subscriber, publisher = broker.subscriber("t"), broker.publisher("t", version=1)
            for _ in range(misses + 3):
                subscriber.expect(b"NOP")
                subscriber.send(b"NIL")
            publisher.send(b"NOP")
            publisher.expect(b"NIL")  # and no NOP before it: version 1's passive side sends none
            publisher.messages(b"still here")
            assert subscriber.message() == b"still here"


def test_keep_alive_moves_the_position_past_what_was_not_wanted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, HEADWATER_PSMB_KEEPALIVE_SECONDS="0.3") as broker:
        subscriber = broker.subscriber("mine", identity=3)
        broker.publisher("other").messages(*[b"x"] * 1000)
        for _ in eventually():  # the first NOP may be from before the messages
            subscriber.expect(b"NOP")
            subscriber.send(b"NIL")
            if broker.position("psmb/3/mine") == 1000:
                break


def test_one_id_on_two_patterns_has_two_positions(shared_broker: BrokerProcess) -> None:
    """As deployed clients do it: neither connection ends the other, or takes its messages."""
    left = shared_broker.subscriber("pair/left", identity=31)
    right = shared_broker.subscriber("pair/right", identity=31)
    for number in range(20):
        shared_broker.publisher("pair/left").messages(b"l%d" % number)
        shared_broker.publisher("pair/right").messages(b"r%d" % number)
    left.expect_messages(*[b"l%d" % number for number in range(20)])
    right.expect_messages(*[b"r%d" % number for number in range(20)])
    again = shared_broker.subscriber("pair/left", identity=31)  # the same pair takes over
    assert left.rest().endswith(b"BYE")
    again.close()


def test_a_position_of_an_earlier_version_is_taken_over(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.publisher("t").messages(b"1", b"2", b"3")
        assert broker.stop() == 0
        with closing(sqlite3.connect(broker.data / "state.db")) as state, state:
            # As one that had no checksums.
            state.executescript("DROP TABLE sums; DROP TRIGGER cursors_insert")
            state.execute("REPLACE INTO cursors VALUES (?, ?)", ("psmb/5", 2))
        broker.start()
        broker.subscriber("t", identity=5).expect_messages(b"3")
        assert broker.stop() == 0


def test_new_subscribers_may_begin_with_new_messages(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", HEADWATER_PSMB_NEW_SUBSCRIBERS="new") as broker:
        publisher = broker.publisher("t")
        publisher.messages(b"archive")
        subscriber = broker.subscriber("t", identity=5)
        publisher.messages(b"1")
        subscriber.expect_messages(b"1")
        subscriber.close()
        publisher.messages(b"2")
        again = broker.subscriber("t", identity=5)
        assert again.message() in (b"1", b"2")  # it has proved that it has the first, or not
