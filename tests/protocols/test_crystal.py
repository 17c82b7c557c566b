"""CrystalConnector beyond its vectors: the quick ways against the protobuf runtime, any input, any
cut, names, and what hostile input costs."""

import base64
import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from headwater.commands import Command, Identify, Publish, Respond, Subscribe, Unsubscribe
from headwater.errors import Code, Refusal
from headwater.message import Batch, Run
from headwater.protocols.base import Answered, Delivered, Ended, Event, Ready, Terms
from headwater.protocols.crystal import codec as crystal
from headwater.protocols.crystal import crystal_pb2 as pb
from headwater.protocols.crystal.server import AUTHENTICATE_BYTES
from headwater.protocols.crystal.wire import (
    NOT_TEXT,
    SECOND,
    before_payload,
    publish_start,
    split_publish,
    varint,
)
from headwater.protocols.websocket import (
    BINARY,
    TEXT,
    FrameReader,
    TooLarge,
    frame,
    frames,
    masked_frame,
    masked_frames,
)
from tests.generated_docs import ROOT
from tests.protocols.helpers import (
    LIMIT,
    TERMS,
    broken,
    events,
    memory_kept,
    outcome,
    pieces,
    seconds,
    shown_unmasked,
    sizes,
)
from tests.protocols.test_websocket import REQUEST, SWITCHING
from tests.protocols.vectors import PEER, Key, merged_runs

SETTINGS = crystal.CrystalSettings("secret")
SERVICE = crystal.CrystalService(SETTINGS)
NONCE = b"the sample nonce"
ORDERS = ("shop", "orders")
SOURCE = ROOT / "src" / "headwater" / "protocols" / "crystal"

names = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("/%25F"), max_size=12)
channels = st.tuples(names, names)
texts = st.lists(
    st.text(max_size=40).map(str.encode) | st.just(b"same size") | st.just(b"x" * 200),
    min_size=1,
    max_size=30,
)


def results(*errors: pb.Error | None) -> bytes:
    made = [
        pb.Result(successful=pb.Successful()) if error is None else pb.Result(error=error)
        for error in errors
    ]
    return b"".join([frame(BINARY, each.SerializeToString()) for each in made])


def named(channel: tuple[str, str]) -> pb.NamespacedName:
    return pb.NamespacedName(namespace=channel[0], name=channel[1])


def sent(*messages: bytes) -> bytes:
    return masked_frames(BINARY, messages, bytes(4 * len(messages)))


def hello(directions: Mapping[str, int] | None = None) -> bytes:
    """The handshake and the authentication of a client."""
    client = crystal.CrystalClientSession(LIMIT)
    wanted = {"shop/orders": crystal.ALL} if directions is None else directions
    return REQUEST + client.authenticate(("shop", "bot"), "Bot", "secret", wanted)


def known(
    terms: Terms = TERMS,
    directions: Mapping[str, int] | None = None,
    service: crystal.CrystalService = SERVICE,
) -> crystal.CrystalSession:
    """The session of a client that has authenticated."""
    session = service.session(terms)
    list(session.receive(hello(directions)))
    return session


def listener() -> crystal.CrystalClientSession:
    client = crystal.CrystalClientSession(LIMIT, NONCE)
    assert list(client.receive(SWITCHING)) == [Ready(), Answered()]
    return client


# The compiled messages


@pytest.mark.parametrize("name", ["crystal_pb2.py", "crystal_pb2.pyi"])
def test_the_compiled_messages_are_current(name: str, tmp_path: Path) -> None:
    """`make proto` makes them."""
    options = ["-I", str(ROOT / "src"), f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    command = [sys.executable, "-m", "grpc_tools.protoc", *options, str(SOURCE / "crystal.proto")]
    subprocess.run(command, check=True, timeout=60)
    made = tmp_path / "headwater" / "protocols" / "crystal" / name
    assert made.read_text() == (SOURCE / name).read_text()


def test_the_numbers_of_the_protocol() -> None:
    assert dict(pb.MessageDirection.items()) == {"NONE": 0, "INCOMING": 1, "OUTGOING": 2, "ALL": 3}
    assert dict(pb.Error.items()) == {
        "UNKNOWN": 0,
        "AUTHENTICATED": 1,
        "NAME_EXISTS": 2,
        "UNAUTHENTICATED": 3,
        "UNREGISTERED_CHANNEL": 4,
        "INTERNAL": 5,
    }


# Names


@pytest.mark.property
@given(channels)
def test_a_channel_is_a_topic_and_back(channel: tuple[str, str]) -> None:
    topic = crystal.topic_of(*channel)
    if channel == ("", ""):
        assert topic == ""
    else:
        assert crystal.channel_of(topic) == channel


@pytest.mark.property
@given(st.text("ab/%25F", max_size=12) | names)
def test_a_topic_is_a_channel_and_back(topic: str) -> None:
    try:
        channel = crystal.channel_of(topic)
    except Refusal as error:
        # Only these cannot be reached.
        first = topic.partition("/")[0].replace("%25", "").replace("%2F", "")
        assert error.code is Code.MALFORMED
        assert not topic.partition("/")[0] or "%" in first
    else:
        assert crystal.topic_of(*channel) == topic


@pytest.mark.property
@given(channels, channels)
def test_two_channels_are_two_topics(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (crystal.topic_of(*one) == crystal.topic_of(*other)) == (one == other)


@pytest.mark.parametrize(
    "namespace, name, topic",
    [
        ("shop", "orders", "shop/orders"),
        ("shop", "a/b", "shop/a/b"),
        ("a/b%", "x%", "a%2Fb%25/x%"),
        ("", "lobby", "lobby"),
        ("", "a/b%", "a%2Fb%25"),
        ("shop", "", "shop/"),
        ("%2F", "x", "%252F/x"),
    ],
)
def test_names(namespace: str, name: str, topic: str) -> None:
    assert crystal.topic_of(namespace, name) == topic
    assert crystal.channel_of(topic) == (namespace, name)


# The quick way to read a Publish


def by_runtime(message: bytes) -> tuple[tuple[str, str], bytes] | None:
    """What the protobuf runtime makes of a message. None: it is broken."""
    try:
        found = pb.Publish.FromString(message)
    except DecodeError:
        return None
    return (found.channel.namespace, found.channel.name), found.payload.encode()


def by_session(message: bytes, registered: tuple[str, str]) -> bytes:
    """What the broker's side makes of a message of a client that may publish to one channel."""
    session = SERVICE.session(Terms(PEER))
    client = crystal.CrystalClientSession(LIMIT)
    topic = crystal.topic_of(*registered)
    wanted = {topic: crystal.OUTGOING}
    list(session.receive(REQUEST + client.authenticate(ORDERS, "Bot", "secret", wanted)))
    told, answer, closed = outcome(session, [sent(message)])
    assert not closed
    return answer + b"".join(told)


def expected_of(message: bytes, registered: tuple[str, str]) -> bytes:
    found = by_runtime(message)
    if found is None:
        return results(pb.UNKNOWN)
    if found[0] != registered:
        return results(pb.UNREGISTERED_CHANNEL)
    return results(None) + f"publish {crystal.topic_of(*registered)} by Bot: ".encode() + found[1]


written = st.builds(
    lambda channel, payload: pb.Publish(channel=named(channel), payload=payload),
    channels,
    st.text(max_size=300),
).map(pb.Publish.SerializeToString)
pieces_of_messages = st.sampled_from(
    [
        b"\x0a\x00",
        b"\x0a\x0e\x0a\x04shop\x12\x06orders",
        b"\x0a\x0e\x12\x06orders\x0a\x04shop",
        b"\x0a\x06\x0a\x04shop",
        b"\x0a\x03\x0a\x01\xff",
        b"\x0a\x8e\x00\x0a\x04shop\x12\x06orders",
        b"\x12\x01x",
        b"\x12\x00",
        b"\x12\x81\x80\x00x",
        b"\x12\x81\x80\x80\x80\x80\x00x",
        b"\x12\x02\xc3\xa9",
        b"\x12\x01\xff",
        b"\x12\x05x",
        b"\x12\xff\xff\xff\xff\x7f",
        b"\x2a\x01x",
        b"\x08\x01",
        b"\x10\x01",
    ]
)
shaped = st.lists(pieces_of_messages, min_size=1, max_size=4).map(b"".join)


@pytest.mark.property
@given(written | shaped | written.flatmap(broken) | st.binary(max_size=30))
def test_the_quick_way_to_read_agrees_with_the_runtime(message: bytes) -> None:
    found = split_publish(message)
    if found is None:
        return
    start, body = found
    try:
        channel = pb.NamespacedName.FromString(start[2:-1])
        payload = message[body:].decode()
    except (DecodeError, UnicodeDecodeError):
        assert by_runtime(message) is None
        return
    assert by_runtime(message) == ((channel.namespace, channel.name), payload.encode())


@pytest.mark.property
@given(shaped | shaped.flatmap(broken))
def test_a_session_agrees_with_the_runtime(message: bytes) -> None:
    received = pb.Received()
    try:
        received.ParseFromString(message)
    except DecodeError:
        pass
    else:
        if received.HasField("secret_key") or received.HasField("channels"):
            return  # an Authenticate
    assert by_session(message, ORDERS) == expected_of(message, ORDERS)


@pytest.mark.property
@given(channels.filter(any), st.text(max_size=300).map(str.encode))
def test_the_common_shape_is_what_the_runtime_writes(
    channel: tuple[str, str], payload: bytes
) -> None:
    message = pb.Publish(channel=named(channel), payload=payload.decode()).SerializeToString()
    start = publish_start(channel)
    assert before_payload(start, SECOND, len(payload)) + payload == message
    if payload and len(start) < 130:
        assert split_publish(message) == (start + b"\x12", len(message) - len(payload))


@given(st.integers(0, 1 << 35))
def test_varints(number: int) -> None:
    decoded = sum((byte & 0x7F) << 7 * index for index, byte in enumerate(varint(number)))
    assert decoded == number
    assert [byte >> 7 for byte in varint(number)] == [1] * (len(varint(number)) - 1) + [0]


# The quick way to write a Forward


@pytest.mark.property
@given(channels, names, st.lists(st.binary(max_size=300), min_size=1, max_size=20))
def test_forwards_are_what_the_runtime_writes(
    channel: tuple[str, str], publisher: str, payloads: list[bytes]
) -> None:
    session = known()
    run = Run("t", payloads, protocol="psmb", publisher=publisher)
    made = session.encode(Batch(0, 0, run), Key(channel))
    expected = []
    for payload in payloads:
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            text = (NOT_TEXT + base64.b64encode(payload)).decode()
        forward = pb.Forward(publisher=publisher, channel=named(channel), payload=text)
        expected.append(forward.SerializeToString())
    assert made == frames(BINARY, expected)


def test_forwards_are_built_once_for_all_subscribers_of_a_channel() -> None:
    run = Run("shop/orders", [b"1", b"2"], protocol="crystal", publisher="Bot")
    batch = Batch(0, 0, run)
    one, other = (known().encode(batch, Key(ORDERS)) for _ in range(2))
    assert one is other


# Round trips


@pytest.mark.property
@given(channels.filter(any), texts, sizes)
def test_what_a_client_publishes_arrives(
    channel: tuple[str, str], payloads: list[bytes], cut: list[int]
) -> None:
    topic = crystal.topic_of(*channel)
    session = known(Terms(PEER), {topic.replace("\0", "0"): crystal.OUTGOING})
    topic = topic.replace("\0", "0")
    stream = crystal.CrystalClientSession(LIMIT).publish(topic, payloads)
    found = [c for piece in pieces(stream, cut) for c in session.receive(piece)]
    (command,) = merged_runs(found)
    assert isinstance(command, Publish)
    assert (command.run.topic, list(command.run.payloads)) == (topic, payloads)
    assert (command.run.publisher, command.run.headers, command.echo) == ("Bot", (), True)
    client = listener()
    assert events(client, pieces(command.answer, cut)) == [Answered()] * len(payloads)


@pytest.mark.property
@given(channels.filter(any), names, texts, sizes)
def test_what_the_broker_delivers_arrives(
    channel: tuple[str, str], publisher: str, payloads: list[bytes], cut: list[int]
) -> None:
    topic = crystal.topic_of(*channel)
    batch = Batch(0, 0, Run(topic, payloads, protocol="crystal", publisher=publisher))
    stream = known().encode(batch, Key(channel))
    expected = [Delivered(topic, payloads, (("publisher", publisher),))]
    assert events(listener(), pieces(stream, cut)) == expected
    assert events(listener(), [stream]) == expected


def test_a_whole_read_is_one_run() -> None:
    """However many messages there are: nothing is done for each of them on the way."""
    stream = crystal.CrystalClientSession(LIMIT).publish(
        "shop/orders", [b"x" * 100] * 300 + [b"y", b"zz"]
    )
    (command,) = known().receive(stream)
    assert isinstance(command, Publish)
    assert len(command.run) == 302


@pytest.mark.parametrize("error", pb.Error.values())
def test_every_error_arrives(error: pb.Error) -> None:
    (event,) = listener().receive(results(error))
    assert isinstance(event, Answered)
    assert event.error is not None


def test_a_client_does_not_send_what_is_not_text() -> None:
    with pytest.raises(Refusal):
        crystal.CrystalClientSession(LIMIT).publish("shop/orders", [b"good", b"\xff"])


@pytest.mark.parametrize("topic", ["/a", "", "a%/b"])
def test_a_client_does_not_send_a_topic_that_is_no_channel(topic: str) -> None:
    client = crystal.CrystalClientSession(LIMIT)
    with pytest.raises(Refusal):
        client.publish(topic, [b"1"])
    with pytest.raises(Refusal):
        client.authenticate(ORDERS, "Bot", "secret", {topic: crystal.INCOMING})


# Authentication


def registering(directions: Mapping[str, int]) -> Iterator[Command]:
    session = SERVICE.session(TERMS)
    commands = session.receive(hello(directions))
    assert isinstance(next(commands), Respond)
    return commands


def test_the_answer_comes_with_the_last_command() -> None:
    identify, one, other = registering(dict.fromkeys(["a/b", "a/c"], crystal.INCOMING))
    assert isinstance(identify, Identify)
    assert isinstance(one, Subscribe)
    assert isinstance(other, Subscribe)
    assert (identify.answer, one.answer, other.answer) == (b"", b"", results(None))
    (identify,) = registering({"a/b": crystal.OUTGOING})
    assert isinstance(identify, Identify)
    assert identify.answer == results(None)


def test_a_subscription_that_is_refused_takes_the_others_with_it() -> None:
    session = SERVICE.session(TERMS)
    wanted = dict.fromkeys(["a/b", "a/c", "a/d"], crystal.ALL)
    seen: list[Command] = []
    answers = b""
    for command in session.receive(hello(wanted)):
        seen.append(command)
        if isinstance(command, Subscribe) and command.key == ("a", "c"):
            reaction = session.refuse(command, Refusal(Code.TOO_LARGE, "too many subscriptions"))
            assert isinstance(reaction, Respond)
            answers += reaction.answer
        elif not isinstance(seen[-1], Respond):
            answers += getattr(command, "answer", b"")
    _, _, one, other, undone = seen
    assert isinstance(one, Subscribe)
    assert isinstance(other, Subscribe)
    assert undone == Unsubscribe(("a", "b"))
    assert answers == results(pb.INTERNAL)
    # It is not authenticated, and may try again.
    published = crystal.CrystalClientSession(LIMIT).publish("a/b", [b"1"])
    assert list(session.receive(published)) == [Respond(results(pb.UNAUTHENTICATED))]
    again = [type(each) for each in session.receive(hello(wanted)[len(REQUEST) :])]
    assert again == [Identify, Subscribe, Subscribe, Subscribe]


def test_an_unauthenticated_client_cannot_send_much() -> None:
    session = SERVICE.session(Terms(PEER))
    list(session.receive(REQUEST))
    large = pb.Authenticate(secret_key="secret", client_name="x" * AUTHENTICATE_BYTES)
    answers = list(session.receive(sent(large.SerializeToString())))
    assert answers == [Respond(results(pb.UNKNOWN))]


def test_ids_that_are_not_recommended_are_noted_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = crystal.CrystalService(SETTINGS)
    directions = {"Strange Shop/orders": crystal.ALL, "shop/%": crystal.OUTGOING}
    with caplog.at_level(logging.INFO, logger="headwater.protocols.crystal"):
        for _ in range(3):
            known(directions=directions, service=service)
    assert [each for each in caplog.messages if "Strange Shop" in each] == [
        "an ID that CrystalConnector does not recommend: 'Strange Shop'"
    ]
    assert not [each for each in caplog.messages if "orders" in each]


def test_what_is_noted_has_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="headwater.protocols.crystal"):
        crystal.CrystalService(SETTINGS).note(f"Number {index}" for index in range(5000))
    assert len(caplog.messages) == 1000


def test_directions_have_the_numbers_of_the_document() -> None:
    named = {name: getattr(crystal, name) for name in ("NONE", "INCOMING", "OUTGOING", "ALL")}
    assert named == dict(pb.MessageDirection.items())


def test_a_connection_is_established_by_its_handshake() -> None:
    """It may stay unauthenticated for as long as it likes: the broker does not end connections."""
    session = SERVICE.session(TERMS)
    assert not session.established
    list(session.receive(REQUEST))
    assert session.established
    assert session.idle_after is None
    assert session.idle(7) is None
    assert session.mark(7) == b""


# Any input

AUTHENTICATE = hello()[len(REQUEST) :]
PUBLISH = b"\x0a\x0e\x0a\x04shop\x12\x06orders\x12\x01"
inputs = st.sampled_from(
    [
        AUTHENTICATE,
        sent(PUBLISH + b"1"),
        sent(*[PUBLISH + b"1"] * 20),
        sent(PUBLISH + b"1", PUBLISH[:-1] + b"\x02zz"),
        sent(PUBLISH.replace(b"orders", b"others") + b"1"),
        sent(PUBLISH + b"\xff"),
        sent(PUBLISH[:-2]),
        sent(b""),
        sent(b"\xff"),
        sent(PUBLISH[:-1] + b"\xbd\x07" + b"x" * 957),
        sent(b"x" * (LIMIT + 1)),
        masked_frame(TEXT, b"text", bytes(4)),
        masked_frame(TEXT, b"\xff", b"\x01\x02\x03\x04"),
        masked_frame(0x9, b"?", bytes(4)),
        b"\x02\x93\0\0\0\0" + PUBLISH + b"1" + b"\x80\x80\0\0\0\0",
    ]
)
streams = st.lists(inputs | inputs.flatmap(broken) | st.binary(max_size=8), max_size=6)


@pytest.mark.property
@given(streams.map(b"".join), st.sampled_from([REQUEST, hello(), b""]), sizes)
def test_any_input_means_the_same_however_it_is_cut(
    stream: bytes, start: bytes, cut: list[int]
) -> None:
    whole = outcome(SERVICE.session(TERMS), [start + stream])
    session = SERVICE.session(TERMS)
    assert outcome(session, pieces(start + stream, cut)) == whole


@pytest.mark.property
@given(st.lists(written | shaped | shaped.flatmap(broken) | st.binary(max_size=30), max_size=8))
def test_every_message_has_its_result(messages: list[bytes]) -> None:
    """Whatever is in a message, the connection stays, and each is answered by one Result."""
    session = known()
    _, answer, closed = outcome(session, [sent(*messages)])
    assert not closed
    found = FrameReader(LIMIT, masked=False).receive(answer)
    assert len(found) == len(messages)
    for each in found:
        assert not isinstance(each, TooLarge)
        assert pb.Result.FromString(each[1]).WhichOneof("result")


answers_of_brokers = st.sampled_from(
    [
        results(None),
        results(pb.UNKNOWN, pb.INTERNAL),
        known().encode(Batch(0, 0, Run("t", [b"1"] * 3, protocol="p")), Key(ORDERS)),
        known().encode(Batch(0, 0, Run("t", [b"1", b"22"], protocol="p")), Key(ORDERS)),
        frame(BINARY, b"\x1a\x01\xff"),
        frame(BINARY, b"\x10"),
        frame(BINARY),
        frame(TEXT, b"x"),
    ]
)
from_brokers = st.lists(
    answers_of_brokers | answers_of_brokers.flatmap(broken) | st.binary(max_size=8), max_size=6
)


@pytest.mark.property
@given(from_brokers.map(b"".join), sizes)
def test_a_client_survives_any_broker(stream: bytes, cut: list[int]) -> None:
    whole = shown_unmasked(listener(), [stream])
    assert shown_unmasked(listener(), pieces(stream, cut)) == whole


def test_a_client_reads_what_the_runtime_reads() -> None:
    """A Forward whose payload is not UTF-8 is broken, also behind one that is good."""
    good = known().encode(Batch(0, 0, Run("t", [b"1"], protocol="p")), Key(ORDERS))
    found: list[Event] = list(listener().receive(good * 2 + good.replace(b"1", b"\xff")))
    assert isinstance(found[0], Delivered)
    assert list(found[0].payloads) == [b"1", b"1"]
    assert isinstance(found[1], Ended)


# What hostile input costs


def published(stream: bytes) -> int:
    session = known(Terms(PEER), {"shop/orders": crystal.ALL, "shop/news": crystal.ALL})
    return sum(len(c.run) for c in session.receive(stream) if isinstance(c, Publish))


@pytest.mark.parametrize("pattern", [(1, 2), (1, 1, 2), (1,) * 16 + (2,), (1, 1, 300)])
def test_sizes_that_defeat_the_search_for_runs(pattern: tuple[int, ...]) -> None:
    count = 10_000 // len(pattern)
    payloads = [b"x" * size for size in pattern] * count
    stream = crystal.CrystalClientSession(LIMIT).publish("shop/orders", payloads)
    assert published(stream) == len(payloads)
    assert seconds(lambda: published(stream)) < 0.5


def test_channels_that_take_turns() -> None:
    client = crystal.CrystalClientSession(LIMIT)
    both = client.publish("shop/orders", [b"x"]) + client.publish("shop/news", [b"x"])
    assert published(both * 5000) == 10_000
    assert seconds(lambda: published(both * 5000)) < 0.5


def test_a_message_of_very_many_fields() -> None:
    """Fields that nobody knows, or that are repeated, must not each become an object."""
    for field in (b"\x28\x01", b"\x0a\x00", b"\x12\x00", b"\x22\x00", b"\x1a\x00"):
        message = sent(field * 500_000)
        session = known(Terms(PEER))
        assert seconds(lambda: list(session.receive(message))) < 0.5  # noqa: B023
        assert memory_kept(lambda: list(session.receive(message))) < 4_000_000  # noqa: B023


def test_very_many_channels() -> None:
    request = pb.Authenticate(secret_key="secret")
    for index in range(50_000):
        request.channels.add(id=pb.NamespacedName(name=f"{index}"), direction=pb.ALL)
    stream = REQUEST + sent(request.SerializeToString())

    def register() -> None:
        session = SERVICE.session(Terms(PEER))
        assert len(list(session.receive(stream))) == 50_002

    assert seconds(register) < 2


def test_channels_that_are_remembered_have_a_bound() -> None:
    message = PUBLISH.replace(b"orders", b"%06d") + b"1"

    def publish() -> crystal.CrystalSession:
        session = known(Terms(PEER))
        for index in range(0, 50_000, 1000):
            stream = sent(*[message % number for number in range(index, index + 1000)])
            for command in session.receive(stream):
                assert isinstance(command, Respond)
        return session

    assert memory_kept(publish) < 1_000_000
