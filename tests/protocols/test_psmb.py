"""PSMB beyond its vectors: any input, any cut, and what hostile input costs."""

from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.commands import Advertise, Close, Confirm, Publish, Respond, Subscribe
from headwater.errors import Code, HeadwaterError, Refusal
from headwater.message import Batch, Run
from headwater.protocols.base import Answered, Delivered, Pinged, Ready, Terms
from headwater.protocols.psmb import codec as psmb
from tests.protocols.helpers import (
    LIMIT,
    TERMS,
    broken,
    commands_of,
    events,
    memory_kept,
    outcome,
    payloads,
    pieces,
    seconds,
    shown_events,
    sizes,
)
from tests.protocols.vectors import PEER, Key

PATIENT = psmb.PsmbSettings()

ascii_text = st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1, max_size=64)
plain_patterns = st.text("ab/", max_size=10).map(lambda text: text + "x.*")
subscribers = st.none() | st.integers(0, 2**64 - 1)
versions = st.sampled_from(psmb.VERSIONS)


def publisher(terms: Terms = TERMS, version: int = 2) -> psmb.PsmbSession:
    session = psmb.PsmbSession(terms, PATIENT)
    list(
        session.receive(
            psmb.PsmbClientSession.hello(version) + psmb.PsmbClientSession.publishing("a")
        )
    )
    assert session.state is psmb.PsmbState.PUBLISHING
    return session


def subscriber(
    number: int | None = None, version: int = 2, settings: psmb.PsmbSettings = PATIENT
) -> psmb.PsmbSession:
    session = psmb.PsmbSession(TERMS, settings)
    list(
        session.receive(
            psmb.PsmbClientSession.hello(version) + psmb.PsmbClientSession.subscribe("a.*", number)
        )
    )
    assert session.state is psmb.PsmbState.SUBSCRIBED
    return session


# Round trips


@pytest.mark.property
@given(version=versions, topic=ascii_text, runs=st.lists(payloads, max_size=5), cut=sizes)
def test_what_a_client_publishes_arrives(
    version: int, topic: str, runs: list[list[bytes]], cut: list[int]
) -> None:
    stream = psmb.PsmbClientSession.hello(version) + psmb.PsmbClientSession.publishing(topic)
    stream += b"".join(psmb.encode_messages(run) + psmb.NOP for run in runs)
    commands = commands_of(psmb.PsmbSession(TERMS, PATIENT), stream, cut)
    assert Advertise(topic, psmb.OK) in commands
    published = [command.run for command in commands if isinstance(command, Publish)]
    arrived = [payload for run in published for payload in run.payloads]
    assert arrived == [payload for run in runs for payload in run]
    assert all(
        (run.topic, run.protocol, run.publisher) == (topic, "psmb", PEER) for run in published
    )
    answers = b"".join(getattr(command, "answer", b"") for command in commands)
    assert answers.count(psmb.NIL) == len(runs)


@pytest.mark.property
@given(runs=st.lists(payloads, min_size=1, max_size=5), cut=sizes)
def test_what_subscribers_get_is_built_once_and_right(
    runs: list[list[bytes]], cut: list[int]
) -> None:
    """A run remembers the bytes it came in, for subscribers of the same protocol."""
    session = publisher()
    stream = psmb.NOP.join(map(psmb.encode_messages, runs))
    for piece in pieces(stream, cut):
        for command in session.receive(piece):
            if isinstance(command, Publish):
                expected = psmb.encode_messages(command.run.payloads)
                assert command.run.recall("psmb") == expected


@pytest.mark.property
@given(pattern=plain_patterns, number=subscribers, cut=sizes)
def test_what_a_client_subscribes_to_arrives(
    pattern: str, number: int | None, cut: list[int]
) -> None:
    stream = psmb.PsmbClientSession.hello() + psmb.PsmbClientSession.subscribe(pattern, number)
    command = commands_of(psmb.PsmbSession(TERMS, PATIENT), stream, cut)[-1]
    assert isinstance(command, Subscribe)
    assert command.filter.text == pattern
    assert command.known_as == (None if number is None else f"psmb/{number}")
    assert command.durable == (None if number is None else f"psmb/{number}/{command.filter.text}")


@pytest.mark.property
@given(number=subscribers, runs=st.lists(payloads, max_size=5), cut=sizes)
def test_what_the_broker_delivers_arrives(
    number: int | None, runs: list[list[bytes]], cut: list[int]
) -> None:
    session = subscriber(number)
    stream = b"OK\0\0\0\0\0OK\0"
    end = 0
    for run in runs:
        batch = Batch(end, 0, Run("a", run, protocol="bpsp"))
        stream += session.encode(batch, Key(("a.*", ""), number is not None))
        stream += session.mark(batch.end)
        end = batch.end
    ready, accepted, *rest = events(psmb.PsmbClientSession(LIMIT, "a.*"), pieces(stream, cut))
    assert (ready, accepted) == (Ready(), Answered())
    received = [p for event in rest if isinstance(event, Delivered) for p in event.payloads]
    assert received == [payload for run in runs for payload in run]
    pings = [event for event in rest if isinstance(event, Pinged)]
    assert len(pings) == (0 if number is None else len(runs))
    # What the client answers proves every batch, and nothing more.
    proofs = [c for ping in pings for c in session.receive(ping.answer)]
    assert proofs[-1:] == ([Confirm(end)] if pings else [])
    assert not list(session.receive(psmb.NIL))


@pytest.mark.property
@given(st.lists(st.integers(1, 3000) | st.sampled_from(["idle", "answer"]), max_size=30))
def test_a_proof_never_runs_ahead_of_what_was_read(actions: list[int | str]) -> None:
    """A client answers each NOP in turn. What its answers prove is never more than what was sent
    before that NOP, and in the end it is everything, however late the answers come."""
    session = subscriber(7, settings=psmb.PsmbSettings(keepalive_misses=1000))
    waiting: deque[int] = deque()  # for each NOP that the client has to answer, what was sent
    position = proven = 0

    def answer() -> None:
        nonlocal proven
        sent = waiting.popleft()
        for command in session.receive(psmb.NIL):
            assert isinstance(command, Confirm)
            assert proven <= command.offset <= sent
            proven = command.offset

    for action in [*actions, "idle"]:
        if isinstance(action, int):
            for _ in range(action):
                position += 1
                if session.mark(position):
                    waiting.append(position)
        elif action == "idle":
            assert session.idle(position) == Respond(psmb.NOP)
            waiting.append(position)
        elif waiting:
            answer()
    while waiting:
        answer()
    assert proven == position


# Any input


frames = st.sampled_from(
    [
        psmb.PsmbClientSession.publishing("a"),
        psmb.PsmbClientSession.publishing("a" * 70),
        psmb.PsmbClientSession.subscribe("a.*"),
        psmb.PsmbClientSession.subscribe("(", 7),
        psmb.PsmbClientSession.subscribe("b" * 70, 7),
        psmb.encode_messages([b"1", b"2", b"333"]),
        psmb.encode_messages([b"x" * 30] * 20),
        psmb.message_header(LIMIT + 1),
        psmb.message_header(2**64 - 1),
        psmb.NOP,
        psmb.NIL,
        psmb.BYE,
        psmb.PsmbClientSession.hello(),
    ]
)
input_of_clients = st.tuples(
    st.just(psmb.PsmbClientSession.hello()) | broken(psmb.PsmbClientSession.hello()),
    st.lists(frames.flatmap(broken) | st.binary(max_size=12), max_size=6).map(b"".join),
).map(b"".join)


@pytest.mark.property
@given(stream=input_of_clients | st.binary(), cut=sizes)
def test_any_input_means_the_same_however_it_is_cut(stream: bytes, cut: list[int]) -> None:
    whole = outcome(psmb.PsmbSession(TERMS, PATIENT), [stream])
    assert outcome(psmb.PsmbSession(TERMS, PATIENT), pieces(stream, cut)) == whole


words = st.sampled_from(
    [
        b"OK\0\0\0\0\0",
        psmb.UNSUPPORTED,
        psmb.OK,
        psmb.BAD_COMMAND,
        psmb.FAILED + b"why\0",
        psmb.FAILED + b"x" * 130,
        psmb.encode_messages([b"1", b"22"]),
        psmb.message_header(LIMIT + 1),
        psmb.NOP,
        psmb.NIL,
        psmb.BYE,
    ]
)
input_of_brokers = st.lists(words | words.flatmap(broken) | st.binary(max_size=12), max_size=8)


@pytest.mark.property
@given(stream=input_of_brokers.map(b"".join), cut=sizes)
def test_a_client_survives_any_broker(stream: bytes, cut: list[int]) -> None:
    """Nothing is raised, and nothing depends on the cuts."""
    welcome = b"OK\0\0\0\0\0OK\0"
    for start in (b"", welcome[:7], welcome):
        whole = shown_events(psmb.PsmbClientSession(LIMIT), [start + stream])
        assert shown_events(psmb.PsmbClientSession(LIMIT), pieces(start + stream, cut)) == whole


# States


def test_the_handshake_lasts_until_the_mode_is_chosen() -> None:
    session = psmb.PsmbSession(TERMS, PATIENT)
    assert not session.established
    list(session.receive(psmb.PsmbClientSession.hello()))
    assert not session.established
    (command,) = session.receive(psmb.PsmbClientSession.publishing("a"))
    assert session.established
    session.refuse(command, Refusal(Code.NOT_PERMITTED, "no"))
    assert not session.established


@pytest.mark.parametrize(
    ("session", "expected"),
    [
        (publisher(version=1), False),  # the passive side sends no NOP in version 1
        (publisher(version=2), True),
        (subscriber(version=1), True),
        (subscriber(version=2), True),
    ],
    ids=["publisher-1", "publisher-2", "subscriber-1", "subscriber-2"],
)
def test_who_is_sent_a_nop_when_idle(session: psmb.PsmbSession, expected: bool) -> None:
    assert (session.idle_after == 10) is expected


def test_a_closed_session_is_not_kept_alive() -> None:
    session = publisher()
    list(session.receive(psmb.BYE))
    assert session.idle_after is None
    assert not session.established


@pytest.mark.parametrize(
    "request_of", [psmb.PsmbClientSession.publishing, psmb.PsmbClientSession.subscribe]
)
def test_a_client_sends_no_nul_inside_a_name(request_of: Callable[[str], bytes]) -> None:
    """What follows a NUL would be taken for the next message."""
    with pytest.raises(HeadwaterError):
        request_of("a\0b")


def test_a_failed_text_says_what_is_wrong_with_the_pattern() -> None:
    session = psmb.PsmbSession(TERMS, PATIENT)
    list(session.receive(psmb.PsmbClientSession.hello()))
    (command,) = session.receive(psmb.PsmbClientSession.subscribe("sensors/[a"))
    assert b"missing terminating ]" in getattr(command, "answer", b"")


# What hostile input costs


def test_a_large_message_in_small_pieces() -> None:
    frame = psmb.encode_messages([bytes(16 << 20)])
    cut = list(pieces(frame, [100]))

    def receive() -> None:
        session = publisher(Terms(PEER))
        (command,) = [c for piece in cut for c in session.receive(piece)]
        assert isinstance(command, Publish)
        assert command.run.size == 16 << 20

    assert seconds(receive) < 2


@pytest.mark.parametrize(
    "pattern",
    [(1, 2), (1, 1, 2), *((1,) * length + (2,) for length in (15, 16, 17, 80)), (0, 0, 1, 1, 300)],
    ids=lambda pattern: f"{len(pattern)}-{sum(pattern)}",
)
def test_sizes_that_defeat_the_search_for_runs(pattern: tuple[int, ...]) -> None:
    count = 20_000 // len(pattern)
    stream = psmb.encode_messages([b"x" * size for size in pattern] * count)

    def receive() -> None:
        session = publisher()
        taken = sum(len(c.run) for c in session.receive(stream) if isinstance(c, Publish))
        assert taken == count * len(pattern)

    assert seconds(receive) < 0.5


@pytest.mark.parametrize("mode", [b"PUB", b"SUB\0\0\0\0"], ids=["pub", "sub"])
def test_a_megabyte_without_a_nul(mode: bytes) -> None:
    def receive() -> None:
        session = psmb.PsmbSession(Terms(PEER), PATIENT)
        list(session.receive(psmb.PsmbClientSession.hello()))
        _, answer, closed = outcome(session, pieces(mode + b"a" * (1 << 20), [100]))
        assert closed
        assert answer.startswith(psmb.FAILED)

    assert seconds(receive) < 0.5


@pytest.mark.parametrize("word", [psmb.NOP, psmb.NIL])
def test_a_flood_of_small_words(word: bytes) -> None:
    stream = word * 20_000
    assert seconds(lambda: outcome(subscriber(), [stream])) < 0.5


def test_a_length_is_not_believed_before_its_bytes_arrive() -> None:
    def announce() -> psmb.PsmbSession:
        session = publisher(Terms(PEER))
        assert not list(session.receive(psmb.message_header(16 << 20) + b"x"))
        return session

    assert memory_kept(announce) < 100_000


def test_a_subscriber_that_never_proves_anything_costs_no_memory() -> None:
    """It may read and send NOP for ever, so keep-alive does not end it; what the broker waits for
    must have a bound all the same."""

    def never_answer() -> psmb.PsmbSession:
        session = subscriber(7)
        for position in range(1000, 51_000):
            session.mark(position)
        return session

    assert memory_kept(never_answer) < 500_000


def test_a_nop_behind_messages_is_answered_when_they_are_durable() -> None:
    """With them, whether there is one or more, and not before an earlier one is."""
    for count in (1, 2, 100):
        session = publisher()
        (command,) = session.receive(psmb.encode_messages([b"x"] * count) + psmb.NOP)
        assert isinstance(command, Publish)
        assert (len(command.run), command.answer) == (count, psmb.NIL)
    (command,) = session.receive(psmb.encode_messages([b"NOP"]))
    assert isinstance(command, Publish)
    assert (list(command.run.payloads), command.answer) == ([b"NOP"], b"")


def test_a_single_message_that_is_too_large_is_refused() -> None:
    session = publisher()
    (command,) = session.receive(psmb.encode_messages([b"x" * (TERMS.message_bytes + 1)]))
    assert isinstance(command, Close)
