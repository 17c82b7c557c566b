"""BPSP beyond its vectors: any input, any cut, and what hostile input costs."""

import contextlib
import struct
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headwater.commands import Identify, Password, Publish, Respond, Subscribe, Unsubscribe
from headwater.errors import Code, HeadwaterError, Refusal
from headwater.message import Batch, Headers, Run
from headwater.protocols.base import Answered, Delivered, Ended, Ready, Terms
from headwater.protocols.bpsp import codec as bpsp
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
from tests.protocols.vectors import PEER, Conversation, Key, Step, files

PAIR = bpsp.format_headers((("x-topic", "a"),))

#: Text that a header can carry: anything that does not end in a backslash.
texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\\";'), max_size=12)
carried = texts.filter(lambda text: not text.endswith("\\"))
headers = st.dictionaries(
    carried.filter(lambda key: not key.startswith("x-")), carried, max_size=4
).map(lambda found: tuple(found.items()))
topics = st.text("ab/é", min_size=1, max_size=20)
tags = carried.filter(lambda tag: len(tag) < 20)


# Headers


@pytest.mark.property
@given(headers)
def test_parsing_undoes_formatting(pairs: Headers) -> None:
    assert bpsp.parse_headers(bpsp.format_headers(pairs)) == pairs


@pytest.mark.property
@given(st.lists(st.tuples(texts, texts), max_size=4))
def test_text_that_ends_in_a_backslash_is_left_out_alone(pairs: list[tuple[str, str]]) -> None:
    """Nothing can stand for a backslash before the closing quote; the other pairs are not hurt."""
    kept = dict(pair for pair in pairs if not any(text.endswith("\\") for text in pair))
    assert dict(bpsp.parse_headers(bpsp.format_headers(tuple(pairs)))) == kept


@pytest.mark.property
@given(st.text('ab\\";', max_size=30).map(str.encode) | st.binary(max_size=30))
def test_any_bytes_are_headers_or_refused(raw: bytes) -> None:
    try:
        found = bpsp.parse_headers(raw)
    except Refusal as error:
        assert error.code is Code.MALFORMED
    else:
        # What was understood can be said again, and means the same.
        assert bpsp.parse_headers(bpsp.format_headers(found)) == found


# Round trips


@pytest.mark.property
@given(topic=topics, run=payloads, extra=headers, ack=st.booleans(), echo=st.booleans(), cut=sizes)
def test_what_a_client_publishes_arrives(
    topic: str, run: list[bytes], extra: Headers, ack: bool, echo: bool, cut: list[int]
) -> None:
    stream = bpsp.BpspClientSession(LIMIT).publish(topic, run, extra, ack=ack, echo=echo)
    (command,) = commands_of(bpsp.BpspSession(TERMS), stream, cut)
    assert isinstance(command, Publish)
    assert list(command.run.payloads) == run
    assert (command.run.topic, command.run.headers, command.echo) == (topic, extra, echo)
    answers = events(bpsp.BpspClientSession(LIMIT), pieces(command.answer, cut))
    assert answers == [Answered()] * (len(run) if ack else 0)


@pytest.mark.property
@given(topic=topics, tag=tags, user=tags, password=carried, cut=sizes)
def test_what_a_client_asks_for_arrives(
    topic: str, tag: str, user: str, password: str, cut: list[int]
) -> None:
    client = bpsp.BpspClientSession(LIMIT)
    stream = (
        client.connect(user, password)
        + client.subscribe(topic, tag)
        + client.unsubscribe(topic, tag)
    )
    connect, subscribe, unsubscribe = commands_of(bpsp.BpspSession(TERMS), stream, cut)
    assert isinstance(connect, Identify)
    assert isinstance(subscribe, Subscribe)
    assert isinstance(unsubscribe, Unsubscribe)
    given = connect.claim.password if isinstance(connect.claim, Password) else ""
    assert (connect.name, given) == ((user, password) if user else (PEER, ""))
    assert subscribe.key == unsubscribe.key == (topic, tag)
    answers = connect.answer + subscribe.answer + unsubscribe.answer
    assert events(client, pieces(answers, cut)) == [Answered()] * 3


@pytest.mark.property
@given(
    topic=topics,
    run=payloads,
    extra=headers,
    publisher=tags,
    keys=st.sets(tags, max_size=3),
    cut=sizes,
)
def test_what_the_broker_delivers_arrives(
    topic: str, run: list[bytes], extra: Headers, publisher: str, keys: set[str], cut: list[int]
) -> None:
    session = bpsp.BpspSession(TERMS)
    batch = Batch(0, 0, Run(topic, run, protocol="psmb", publisher=publisher, headers=extra))
    subscriptions = tuple(Key((topic, tag)) for tag in sorted(keys))
    stream = session.greet() + b"".join([session.encode(batch, each) for each in subscriptions])
    ready, *rest = events(bpsp.BpspClientSession(LIMIT), pieces(stream, cut))
    assert ready == Ready()
    expected = [
        (
            topic,
            run,
            (
                ("x-topic", topic),
                ("x-origin-topic", topic),
                ("x-sub-tag", subscription.key[1]),
                ("x-from", publisher),
                *extra,
            ),
        )
        for subscription in subscriptions
    ]
    delivered = [event for event in rest if isinstance(event, Delivered)]
    assert [(each.topic, each.payloads, each.headers) for each in delivered] == expected


@pytest.mark.property
@given(code=st.sampled_from(Code), sentence=st.text("abc é", max_size=40), extra=headers, cut=sizes)
def test_every_refusal_arrives_with_its_code(
    code: Code, sentence: str, extra: Headers, cut: list[int]
) -> None:
    session = bpsp.BpspSession(TERMS)
    stream = bpsp.BpspClientSession(LIMIT).publish("a", [b"1"], extra, ack=True, echo=False)
    (command,) = session.receive(stream)
    reaction = session.refuse(command, Refusal(code, sentence))
    assert isinstance(reaction, Respond)
    (answer,) = events(bpsp.BpspClientSession(LIMIT), pieces(reaction.answer, cut))
    assert isinstance(answer, Answered)
    assert answer.error is not None
    assert answer.error.code is code
    assert str(answer.error).endswith(sentence)


def test_every_code_has_a_status_of_its_own() -> None:
    assert set(bpsp.STATUS_OF) == set(Code)
    assert len(set(bpsp.STATUS_OF.values())) == len(Code)
    assert all(400 <= status < 600 for status in bpsp.STATUS_OF.values())


def test_every_answer_in_the_vectors_is_whole_frames() -> None:
    """A wildcard in a vector hides a wrong length; a client would not."""
    (file,) = [file for file in files() if file.protocol == "bpsp"]
    for vector in file.vectors:
        answers = Answers()
        conversation = Conversation("bpsp", vector.terms, {})
        for step in (*vector.introduction, *vector.steps):
            answers.take(conversation, step)
        client = bpsp.BpspClientSession(1 << 20)
        found = list(client.receive(bytes(answers.data)))
        assert not any(isinstance(event, Ended) for event in found), vector.name
        # A frame that comes behind them is understood at once: nothing was left over.
        assert list(client.receive(bpsp.frame(bpsp.OK))) == [Answered()], vector.name


class Answers:
    def __init__(self) -> None:
        self.data = bytearray()

    def take(self, conversation: Conversation, step: Step) -> None:
        conversation.perform(step)
        self.data += conversation.answer


# Any input

frames = st.sampled_from(
    [
        bpsp.frame(bpsp.CONNECT),
        bpsp.frame(bpsp.PUB, PAIR, b"1", bpsp.ACK),
        bpsp.frame(bpsp.PUB, PAIR, b"1", bpsp.ACK) * 20,
        bpsp.frame(bpsp.PUB, PAIR, b"22") + bpsp.frame(bpsp.PUB, PAIR, b"1"),
        bpsp.frame(bpsp.PUB, PAIR + b'"k""v";', b"x" * 30),
        bpsp.frame(bpsp.PUB, b'"x-topic""a"', b"1", bpsp.ACK),
        bpsp.frame(bpsp.SUB, PAIR, b"data", bpsp.ACK),
        bpsp.frame(bpsp.UNSUB, PAIR, b"", bpsp.ACK),
        bpsp.frame(bpsp.INFO),
        bytes.fromhex("000d0300000003e9"),  # one byte more than the limit
        bytes.fromhex("ffff0300ffffffff"),
    ]
)
input_of_clients = st.lists(frames | frames.flatmap(broken) | st.binary(max_size=12), max_size=6)


@pytest.mark.property
@given(stream=input_of_clients.map(b"".join), cut=sizes)
def test_any_input_means_the_same_however_it_is_cut(stream: bytes, cut: list[int]) -> None:
    whole = outcome(bpsp.BpspSession(TERMS), [stream])
    assert outcome(bpsp.BpspSession(TERMS), pieces(stream, cut)) == whole


answers = st.sampled_from(
    [
        bpsp.BpspSession(TERMS).greet(),
        bpsp.frame(bpsp.OK, b'"x-status-code""200";'),
        bpsp.frame(bpsp.ERR, b'"x-status-code""404";', b"why"),
        bpsp.frame(bpsp.ERR, b'"x-status-code""\xd9\xa3";'),
        bpsp.frame(bpsp.ERR, b'"x-status-code""";'),
        bpsp.frame(bpsp.MSG, PAIR, b"1") * 3,
        bpsp.frame(bpsp.MSG, b'"broken'),
        bytes.fromhex("000006000000ffff"),
        bpsp.frame(bpsp.PUB),
    ]
)
input_of_brokers = st.lists(answers | answers.flatmap(broken) | st.binary(max_size=12), max_size=6)


@pytest.mark.property
@given(stream=input_of_brokers.map(b"".join), cut=sizes)
def test_a_client_survives_any_broker(stream: bytes, cut: list[int]) -> None:
    """Nothing is raised, and nothing depends on the cuts."""
    whole = shown_events(bpsp.BpspClientSession(LIMIT), [stream])
    assert shown_events(bpsp.BpspClientSession(LIMIT), pieces(stream, cut)) == whole


# Headers that do not fit


@pytest.mark.parametrize(
    "request_of",
    [
        lambda text: bpsp.BpspClientSession(LIMIT).publish(text, [b"1"], (), ack=True, echo=True),
        lambda text: bpsp.BpspClientSession(LIMIT).publish(
            "a", [b"1"], (("k", text),), ack=True, echo=True
        ),
        lambda text: bpsp.BpspClientSession(LIMIT).subscribe("a", text),
        lambda text: bpsp.BpspClientSession(LIMIT).connect("bob", text),
    ],
    ids=["topic", "header", "tag", "password"],
)
def test_a_client_says_that_headers_are_too_long(request_of: Callable[[str], bytes]) -> None:
    """65,535 bytes are all that a frame has room for."""
    with pytest.raises(HeadwaterError):
        request_of("x" * 70_000)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda topic: bpsp.BpspClientSession(LIMIT).publish(topic, [b"1"], (), ack=True, echo=True),
        bpsp.BpspClientSession(LIMIT).subscribe,
        bpsp.BpspClientSession(LIMIT).unsubscribe,
    ],
    ids=["publish", "subscribe", "unsubscribe"],
)
def test_a_client_does_not_send_a_topic_that_cannot_be_written(
    request_of: Callable[[str], bytes],
) -> None:
    """Were it left out silently, the broker would say that the topic is empty."""
    with pytest.raises(HeadwaterError):
        request_of("sensors/a\\")


@pytest.mark.parametrize("topic_bytes", [1024, 65_535])
def test_a_message_of_the_longest_names_can_be_delivered(topic_bytes: int) -> None:
    """Whatever `limits.topic_bytes` is: each name may need two bytes for one."""
    session = bpsp.BpspSession(Terms(PEER, topic_bytes=topic_bytes))
    name = '"' * topic_bytes
    run = Run(name, [b"1"], protocol="psmb", publisher=name)
    frame = session.encode(Batch(0, 0, run), Key((name, name)))
    (event,) = bpsp.BpspClientSession(LIMIT).receive(frame)
    assert isinstance(event, Delivered)
    assert list(event.payloads) == [b"1"]


@pytest.mark.property
@given(topic=topics, key=carried, size=st.integers(0, 70_000))
def test_headers_that_overflow_never_cost_the_message(topic: str, key: str, size: int) -> None:
    assume(not key.startswith("x-"))
    session = bpsp.BpspSession(TERMS)
    run = Run(topic, [b"1"], protocol="prism", publisher="p", headers=((key, "v" * size),))
    frame = session.encode(Batch(0, 0, run), Key((topic, "_0")))
    (event,) = bpsp.BpspClientSession(LIMIT).receive(frame)
    assert isinstance(event, Delivered)
    assert dict(event.headers)["x-origin-topic"] == topic
    assert (key in dict(event.headers)) == (len(frame) > size)


# States


def test_a_connection_is_established_by_its_first_frame() -> None:
    session = bpsp.BpspSession(TERMS)
    assert not session.established
    frame = bpsp.frame(bpsp.SUB, PAIR)
    list(session.receive(frame[:-1]))
    assert not session.established
    list(session.receive(frame[-1:]))
    assert session.established


def test_info_says_how_large_a_message_may_be() -> None:
    greeting = bpsp.BpspSession(TERMS).greet()
    size, _, _, data = struct.unpack_from(">HBBI", greeting)
    found = dict(bpsp.parse_headers(greeting[8 : 8 + size]))
    text = greeting[8 + size :]  # old tools print it, or that there was no response
    assert len(text) == data and text.startswith(b"Headwater ") and text.endswith(b"\n")
    assert found["x-max-data-size"] == str(LIMIT)
    assert set(found) == {"x-server", "x-version", "x-max-data-size"}


def test_silence_is_allowed() -> None:
    session = bpsp.BpspSession(TERMS)
    assert session.idle_after is None
    assert session.idle(7) is None
    assert session.mark(7) == b""


# What hostile input costs


def test_a_large_message_in_small_pieces() -> None:
    cut = list(pieces(bpsp.frame(bpsp.PUB, PAIR, bytes(16 << 20)), [100]))

    def receive() -> None:
        session = bpsp.BpspSession(Terms(PEER))
        (command,) = [c for piece in cut for c in session.receive(piece)]
        assert isinstance(command, Publish)
        assert command.run.size == 16 << 20

    assert seconds(receive) < 2


def published(stream: bytes) -> int:
    session = bpsp.BpspSession(Terms(PEER))
    return sum(len(c.run) for c in session.receive(stream) if isinstance(c, Publish))


@pytest.mark.parametrize(
    "pattern",
    [(1, 2), (1, 1, 2), *((1,) * length + (2,) for length in (15, 16, 17, 80)), (0, 0, 1, 1, 300)],
    ids=lambda pattern: f"{len(pattern)}-{sum(pattern)}",
)
def test_sizes_that_defeat_the_search_for_runs(pattern: tuple[int, ...]) -> None:
    count = 20_000 // len(pattern)
    stream = b"".join(bpsp.frame(bpsp.PUB, PAIR, b"x" * size) for size in pattern) * count
    assert published(stream) == count * len(pattern)
    assert seconds(lambda: published(stream)) < 0.5


@pytest.mark.parametrize("pattern", ["AAB", "AAAAAAAAAAAAAAAB", "AAAAAAAAAAAAAAAAAB"])
def test_long_headers_that_defeat_the_search_for_runs(pattern: str) -> None:
    """They differ in their last byte. One read of 512 KiB must not hold up everyone else."""
    start = PAIR + b'"k""' + b"v" * 32_000
    headers = [start + letter.encode() + b'";' for letter in (pattern * 16)[:16]]
    stream = b"".join(bpsp.frame(bpsp.PUB, raw, b"x") for raw in headers)
    assert published(stream) == 16
    assert seconds(lambda: published(stream)) < 0.025


def test_thousands_of_distinct_headers() -> None:
    stream = b"".join(
        bpsp.frame(bpsp.PUB, PAIR + b'"k""%d";' % index, b"x") for index in range(10_000)
    )
    assert published(stream) == 10_000
    assert seconds(lambda: published(stream)) < 1


@pytest.mark.parametrize(
    "raw",
    [
        b'"' * 65_535,
        b'\\"' * 32_767,
        b'"' + b'\\"' * 32_000,
        b'"' + b"\\" * 65_000,
        b'"a""' + b"b" * 65_000,
        b'"";' * 21_000,
    ],
    ids=["quotes", "escapes", "open-escapes", "backslashes", "open-value", "half-pairs"],
)
def test_malformed_headers_are_found_out_fast(raw: bytes) -> None:
    def parse() -> None:
        with contextlib.suppress(Refusal):
            bpsp.parse_headers(raw)

    assert seconds(parse) < 0.05


def test_headers_of_very_many_pairs() -> None:
    raw = PAIR + b"".join(b'"%x""";' % index for index in range(7_000))
    session = bpsp.BpspSession(Terms(PEER))
    frame = bpsp.frame(bpsp.SUB, raw, b"", bpsp.ACK)
    assert seconds(lambda: list(session.receive(frame))) < 0.1


def test_a_length_is_not_believed_before_its_bytes_arrive() -> None:
    def announce() -> bpsp.BpspSession:
        session = bpsp.BpspSession(Terms(PEER))
        assert not list(session.receive(bytes.fromhex("ffff030001000000") + b"x"))
        return session

    assert memory_kept(announce) < 100_000


@pytest.mark.parametrize(
    "raw",
    [
        lambda index: b'"x-topic""%d";"k""%s";' % (index, b"v" * 60_000),
        lambda index: b"".join(b'"%x""";' % (index * 2_000 + pair) for pair in range(2_000)),
    ],
    ids=["long", "many"],
)
def test_requests_that_are_remembered_have_a_bound_in_bytes(raw: Callable[[int], bytes]) -> None:
    """What is kept so that a publisher's headers are parsed once must not be a place to fill the
    broker's memory from one connection."""

    def ask() -> bpsp.BpspSession:
        session = bpsp.BpspSession(Terms(PEER))
        for index in range(40):
            for _ in session.receive(bpsp.frame(bpsp.SUB, raw(index), b"", bpsp.ACK)):
                pass
        return session

    assert memory_kept(ask) < 2_000_000
