"""BMTP beyond its vectors: any input, any cut, and what hostile input costs."""

import json
import logging
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.commands import Acknowledge, Close, Consume, Publish, Respond
from headwater.errors import Code, ConfigError, Refusal
from headwater.message import Batch, Headers, Run, Tiles
from headwater.protocols.base import Answered, Delivered, Terms
from headwater.protocols.bmtp import codec as bmtp
from headwater.protocols.bmtp import publishing, reader
from headwater.protocols.bmtp.envelope import (
    Opened,
    as_scalar,
    open_delivered,
    open_json,
    parse_delivered,
)
from headwater.protocols.bmtp.jsontext import members
from headwater.protocols.bmtp.names import parse_channel
from headwater.protocols.bmtp.window import Window
from headwater.protocols.bmtp.wire import HELLO, STATUS_OF, encode_pubs, pubacks, with_streams
from tests.protocols.helpers import (
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
from tests.protocols.vectors import PEER, merged_runs

KEY = ("42", "")

dialects: st.SearchStrategy[bmtp.Dialect] = st.sampled_from(["document", "bitmq"])
envelope_names: st.SearchStrategy[bmtp.EnvelopeName] = st.sampled_from(["json", "binary"])
channels = st.integers(0, 2**32 - 1) | st.integers(0, 3)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
producers = st.sampled_from(["", '"p"', "7", "-1.50", "true", '""', '"é"', '"\\u00e9 100%"'])


def connected(
    dialect: bmtp.Dialect = "document", envelope: bmtp.EnvelopeName = "json", terms: Terms = TERMS
) -> bmtp.BmtpSession:
    session = bmtp.BmtpService(bmtp.BmtpSettings(dialect, envelope)).session(terms)
    assert list(session.receive(HELLO)) == [Respond(b"\x20")]
    return session


def pub(body: bytes, first: int = 0x31, stream: int = 1) -> bytes:
    return bytes([first, stream]) + len(body).to_bytes(2) + body


def envelope(data: bytes, channel: int = 42) -> bytes:
    return b'{"consumer_id":%d,"data":"%b"}' % (channel, data)


def batch(run: Sequence[bytes], headers: Headers = (), offset: int = 7) -> Batch:
    return Batch(offset, 0, Run("bmtp/42", run, protocol="bmtp", headers=headers))


# Names

configured = st.dictionaries(
    st.integers(0, 5),
    st.sampled_from(["a", "a/b", "bmtp", "bmtp/", "bmtp/03", "bmtp/x", "bmtp/1", "bmtp/2", "42"]),
)
topics = texts | st.integers(-1, 7).map(lambda number: f"bmtp/{number}") | configured.map(str)


@pytest.mark.property
@given(table=configured, channel=channels, topic=topics | st.sampled_from(["a", "bmtp/03"]))
def test_channels_and_topics_are_one_to_one(
    table: dict[int, str], channel: int, topic: str
) -> None:
    try:
        names = bmtp.Channels(table)
    except ConfigError:
        return
    assert names.channel(names.topic(channel)) == channel
    found = names.channel(topic)
    assert found is None or names.topic(found) == topic
    assert all(names.topic(number) == topic for number, topic in table.items())


@pytest.mark.property
@given(table=configured)
def test_a_table_is_refused_only_if_two_channels_would_have_one_topic(
    table: dict[int, str],
) -> None:
    topics = [table.get(number, f"bmtp/{number}") for number in range(10)]
    if len(set(topics)) == len(topics):
        bmtp.Channels(table)
    else:
        with pytest.raises(ConfigError):
            bmtp.Channels(table)


@pytest.mark.parametrize("topic", ["bmtp/042", "bmtp/4294967296", "bmtp/-1", "bmtp/٤", "bmtp/", ""])
def test_only_canonical_numbers_are_channels(topic: str) -> None:
    assert bmtp.Channels({}).channel(topic) is None
    assert parse_channel(topic.removeprefix("bmtp/")) is None


def test_the_usual_topic_of_a_configured_channel_is_nobodys() -> None:
    names = bmtp.Channels({42: "sensors/a"})
    assert names.topic(42) == "sensors/a"
    assert names.channel("sensors/a") == 42
    assert names.channel("bmtp/42") is None


@pytest.mark.parametrize("table", [{"042": "a"}, {"x": "a"}, {4294967296: "a"}, {1: ""}, {1: "\0"}])
def test_a_bad_table_is_refused(table: dict[int, str]) -> None:
    with pytest.raises(ConfigError):
        bmtp.BmtpService(bmtp.BmtpSettings(channels=table))


# Envelopes

quiet = st.text("ab {[/é中", max_size=10).map(lambda text: f'"{text}"')
values = st.one_of(
    quiet,
    texts.map(json.dumps),
    texts.map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.recursive(
        st.integers() | texts | st.booleans() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=5,
    ).map(json.dumps),
    st.sampled_from(["NaN", "[NaN]", '"\\ud800"', '"a"b"', '"', '""', '"a\n"', "{", "[[]", " []"]),
)
spaces = st.sampled_from(["", "", "", " ", "\n\t"])


@st.composite
def envelopes(draw: st.DrawFn) -> bytes:
    members = [f'"consumer_id":{draw(st.integers(-1, 3))}', f'"data":{draw(values)}']
    if producer := draw(producers):
        members.append(f'"producer_id":{producer}')
    members += draw(
        st.lists(st.sampled_from(['"x":1', '"data":"y"', '"y":{"data":[]}']), max_size=1)
    )
    around = draw(spaces)
    text = f"{around},{around}".join(draw(st.permutations(members)))
    return f"{around}{{{around}{text}{around}}}{around}".encode()


any_envelopes = envelopes() | envelopes().flatmap(broken) | st.binary(max_size=10)


def opened(envelope: bytes) -> tuple[object, bytes] | None:
    try:
        found = open_json(envelope)
    except Refusal as error:
        assert error.code is Code.MALFORMED
        return None
    return found.origin, found.payload


def members_by_the_library(text: str) -> dict[str, object]:
    """The same as `members`, without the places."""
    objects: list[list[tuple[str, object]]] = []

    def gather(pairs: list[tuple[str, object]]) -> dict[str, object]:
        objects.append(pairs)
        return dict(pairs)

    def refuse(name: str) -> object:
        raise ValueError(name)

    found = json.loads(text, object_pairs_hook=gather, parse_constant=refuse, parse_int=float)
    if not isinstance(found, dict) or len(objects[-1]) != len(found):
        raise ValueError("not an object, or a member is there twice")
    return found


@pytest.mark.property
@given(any_envelopes)
def test_an_object_is_what_the_library_says_it_is(each: bytes) -> None:
    try:
        text = each.decode()
        expected = members_by_the_library(text)
    except ValueError:
        with pytest.raises(ValueError):
            members(each.decode())
        return
    found = members(text)
    assert {name: member.value for name, member in found.items()} == expected
    for value, start, end in found.values():
        assert json.loads(text[start:end], parse_int=float) == value
        assert text[start:end] == text[start:end].strip()


@pytest.mark.property
@given(st.lists(any_envelopes, max_size=8))
def test_the_fast_way_to_open_envelopes_finds_what_the_slow_one_finds(all_of: list[bytes]) -> None:
    fast = reader.JsonReader()
    for each in [*all_of, *all_of]:
        found = None
        with suppress(Refusal):
            found = fast.open(b"\x31\x01__" + each + b"}", 4, 4 + len(each))
        assert found == opened(each)


@pytest.mark.property
@given(st.lists(st.tuples(any_envelopes, st.integers(1, 20)), max_size=5), st.sampled_from(b"129"))
def test_packets_mean_the_same_alone_and_together(
    found: list[tuple[bytes, int]], first: int
) -> None:
    packets = [pub(each, first) for each, count in found for _ in range(count)]
    assert outcome(connected(), [b"".join(packets)]) == outcome(connected(), packets)


@pytest.mark.property
@given(
    prefix=st.binary(max_size=4),
    data=st.lists(st.text('ab"\\é', max_size=3), min_size=1, max_size=40),
)
def test_payloads_are_those_of_the_envelopes(prefix: bytes, data: list[str]) -> None:
    """Against a parser that is not ours."""
    made = [json.dumps({"consumer_id": 42, "data": text}, ensure_ascii=False) for text in data]
    stream = b"".join(pub(each.encode()) for each in made)
    (command,) = merged_runs(connected().receive(stream))
    assert isinstance(command, Publish)
    assert list(command.run.payloads) == [text.encode() for text in data]


@pytest.mark.property
@given(
    run=payloads | st.lists(values.map(str.encode), min_size=1),
    producer=producers,
    qos=st.integers(0, 2),
)
def test_what_subscribers_get_is_json_and_says_it_all(
    run: list[bytes], producer: str, qos: int
) -> None:
    headers: Headers = {0: (("qos", "0"),), 1: (), 2: (("qos", "2"),)}[qos]
    headers += (("producer_id", producer),) if producer else ()
    made = Batch(7, 1_234_567, Run("bmtp/42", run, protocol="bmtp", headers=headers))
    ((packets,), awaited) = connected().send(made, KEY, False)
    position = 0
    for offset, payload in enumerate(run, 7):
        size = int.from_bytes(packets[position + 2 : position + 4])
        text = packets[position + 4 : position + 4 + size].decode()
        position += 4 + size
        found = json.loads(text)
        assert list(found)[:5] == ["msg_id", "producer_id", "consumer_id", "create", "data"]
        assert (found["msg_id"], found["consumer_id"], found["create"]) == (offset, 42, 1234)
        assert f'"producer_id":{producer or "null"},' in text
        if isinstance(found["data"], str) and "encoding" not in found:
            assert found["data"].encode() == payload
    assert position == len(packets)
    assert list(awaited) == (list(range(7, 7 + len(run))) if qos else [])


delivered = st.builds(
    lambda data, producer, behind: (
        f'{{"msg_id":7,"producer_id":{producer or "null"},"consumer_id":42,"create":0,'
        f'"data":{data}{behind}}}'
    ).encode(),
    values,
    producers,
    st.sampled_from(["", "", ',"encoding":"base64"', ',"encoding":7']),
)


@pytest.mark.property
@given(delivered | delivered.flatmap(broken))
def test_the_fast_way_to_open_a_delivery_finds_what_the_slow_one_finds(each: bytes) -> None:
    found: list[Opened | None] = []
    for way in (open_delivered, parse_delivered):
        try:
            found.append(way(each))
        except Refusal:
            found.append(None)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("text", "scalar"),
    [("dev-1", '"dev-1"'), ("7", "7"), ('"x"', '"x"'), ("[1]", '"[1]"'), ("7,", '"7,"'), ("", "")],
)
def test_a_producer_is_written_as_json(text: str, scalar: str) -> None:
    assert as_scalar(text) == scalar


# Round trips


@pytest.mark.property
@given(
    channel=channels,
    run=payloads | st.lists(texts.map(str.encode), min_size=1, max_size=40),
    producer=producers,
    qos=st.integers(0, 2),
    again=st.booleans(),
    dialect=dialects,
    envelope=envelope_names,
    cut=sizes,
)
def test_what_a_client_publishes_arrives(
    channel: int,
    run: list[bytes],
    producer: str,
    qos: int,
    again: bool,
    dialect: bmtp.Dialect,
    envelope: bmtp.EnvelopeName,
    cut: list[int],
) -> None:
    client = bmtp.BmtpClientSession(dialect, envelope)
    headers: Headers = (("producer_id", producer),) if producer and envelope == "json" else ()
    try:
        bodies = client.bodies(f"bmtp/{channel}", run, headers)
    except Refusal:
        assert envelope == "json"
        with pytest.raises(UnicodeDecodeError):
            [payload.decode() for payload in run]
        return
    stream = client.publish(bodies, qos, again)
    session = connected(dialect, envelope)
    (command,) = merged_runs(c for piece in pieces(stream, cut) for c in session.receive(piece))
    assert isinstance(command, Publish)
    assert list(command.run.payloads) == run
    assert command.run.topic == f"bmtp/{channel}"
    assert command.run.headers == {0: (("qos", "0"),), 1: (), 2: (("qos", "2"),)}[qos] + headers
    assert bytes(command.once) == (bytes(range(1, len(run) + 1)) if qos == 2 else b"")
    assert command.again is (qos == 2 and again)
    assert client.room == (255 - len(run) if qos else 255)
    answers = events(client, pieces(command.answer, cut))
    assert answers == [Answered()] * (len(run) if qos else 0)
    assert client.room == 255


@pytest.mark.property
@given(
    run=payloads | st.lists(values.map(str.encode), min_size=1, max_size=40),
    producer=producers,
    qos=st.integers(0, 2),
    again=st.booleans(),
    dialect=dialects,
    envelope=envelope_names,
    cut=sizes,
)
def test_what_the_broker_delivers_arrives_and_is_acknowledged(
    run: list[bytes],
    producer: str,
    qos: int,
    again: bool,
    dialect: bmtp.Dialect,
    envelope: bmtp.EnvelopeName,
    cut: list[int],
) -> None:
    session = connected(dialect, envelope)
    headers: Headers = {0: (("qos", "0"),), 1: (), 2: (("qos", "2"),)}[qos]
    told: Headers = (("producer_id", producer),) if producer else ()
    buffers, awaited = session.send(batch(run, headers + told), KEY, again)
    client = bmtp.BmtpClientSession(dialect, envelope)
    got = [
        event
        for piece in pieces(b"".join(buffers), cut)
        for event in client.receive(piece)
        if isinstance(event, Delivered)
    ]
    assert [payload for event in got for payload in event.payloads] == run
    repeated = (("dup", "1"),) if again and qos else ()
    expected = headers + (told if envelope == "json" else ()) + repeated
    assert {(event.topic, event.headers) for event in got} == {("bmtp/42", expected)}
    receipts = b"".join(receipt for event in got for receipt in event.receipts)
    acknowledged = list(merged_runs(c for p in pieces(receipts, cut) for c in session.receive(p)))
    wanted = list(range(7, 7 + len(run))) if qos else []
    assert list(awaited) == wanted
    assert acknowledged == ([Acknowledge(KEY, wanted)] if qos else [])


@pytest.mark.property
@given(found=st.lists(channels, min_size=1, max_size=5), cut=sizes)
def test_what_a_client_subscribes_to_arrives(found: list[int], cut: list[int]) -> None:
    client = bmtp.BmtpClientSession()
    stream = b"".join(client.subscribe(f"bmtp/{channel}") for channel in found)
    session = connected()
    commands = [c for piece in pieces(stream, cut) for c in session.receive(piece)]
    assert all(isinstance(command, Consume) for command in commands)
    assert [getattr(command, "key", None) for command in commands] == [
        (str(channel), "") for channel in found
    ]
    answers = b"".join(getattr(command, "answer", b"") for command in commands)
    assert events(client, pieces(answers, cut)) == [Answered()] * len(found)


def test_a_channel_is_a_queue_that_keeps_everything_until_it_is_acknowledged() -> None:
    for delivery in ("broadcast", "balanced"):
        settings = bmtp.BmtpSettings(delivery=delivery, channels={42: "sensors/a"})
        session = bmtp.BmtpService(settings).session(TERMS)
        _, command = session.receive(HELLO + b"\x50\0\0\0\x2a")
        assert isinstance(command, Consume)
        queue = command.queue
        assert (command.key, queue.name) == (("42", ""), "bmtp/sensors/a")
        assert [each.matches("sensors/a") for each in queue.filters] == [True]
        assert (queue.shared, queue.from_start) == (delivery == "balanced", True)
        assert (queue.prefetch, queue.ack_seconds, queue.max_deliveries) == (None, None, None)


@pytest.mark.parametrize("code", Code)
def test_every_refusal_arrives(code: Code) -> None:
    session = connected()
    (command,) = session.receive(pub(envelope(b"hi"), stream=9) + pub(envelope(b"ho"), stream=8))
    reaction = session.refuse(command, Refusal(code, "why"))
    assert reaction == Respond(pubacks(STATUS_OF[code], b"\x09\x08"))
    for answer in bmtp.BmtpClientSession().receive(reaction.answer):
        assert isinstance(answer, Answered)
        assert answer.error is not None
    assert session.refuse(Publish(batch([b"x"]).run), Refusal(code, "why")) is None


def test_the_names_that_a_client_takes() -> None:
    client = bmtp.BmtpClientSession(channels={7: "sensors/a", 8: "42"})
    assert client.subscribe("sensors/a") == b"\x50\0\0\0\x07"
    assert client.subscribe("bmtp/42") == b"\x50\0\0\0\x2a"
    assert client.subscribe("42") == b"\x50\0\0\0\x08"  # it is a topic here
    assert client.subscribe("43") == b"\x50\0\0\0\x2b"
    for name in ("bmtp/7", "sensors/b", "042", ""):
        with pytest.raises(Refusal, match="no BMTP channel"):
            client.subscribe(name)


def test_what_a_client_cannot_say() -> None:
    with pytest.raises(Refusal, match="no headers"):
        bmtp.BmtpClientSession().bodies("42", [b"x"], (("a", "b"),))
    with pytest.raises(Refusal, match="no headers"):
        bmtp.BmtpClientSession(envelope="binary").bodies("42", [b"x"], (("producer_id", "b"),))
    with pytest.raises(Refusal, match="binary envelope"):
        bmtp.BmtpClientSession().bodies("42", [b"\xff"])
    for name in ("json", "binary"):
        client = bmtp.BmtpClientSession(envelope=name)
        with pytest.raises(Refusal, match="too large"):
            client.bodies("42", [b"x" * 65_536])
    assert bmtp.BmtpClientSession(envelope="binary").bodies("42", [b"x" * 65_528])
    assert bmtp.BmtpClientSession().bodies("42", [b"x" * 65_430])
    with pytest.raises(Refusal, match="too large"):
        bmtp.BmtpClientSession().bodies("42", [b"x" * 65_431])


# Any input

requests = st.sampled_from(
    [
        pub(envelope(b"hi")),
        pub(envelope(b"hi")) * 20,
        b"".join(pub(envelope(b"%02d" % number), stream=number) for number in range(20)),
        b"".join(pub(b"\0\0\0\x2a%d" % number, 0x3A, number) for number in range(20)),
        pub(envelope(b"a", 43), 0x30),
        pub(b'{"consumer_id":42,"data":[1],"producer_id":"p"}', 0x32),
        pub(b"{}"),
        pub(b""),
        b"\x30\x00\x04\x00\x00\x00\x01",
        b"\x50\x00\x00\x00\x2a",
        pubacks(0, b"\x01\x02\x03"),
        pubacks(0, b"\x01") + b"\xc0",
        b"\xc0\xd0",
        b"\xe0",
        b"\x33",
        b"\x31\x01\xff\xff",
        HELLO,
    ]
)
input_of_clients = st.lists(
    requests | requests | requests.flatmap(broken) | st.binary(max_size=12), max_size=8
).map(b"".join)


def prepared(dialect: bmtp.Dialect, envelope: bmtp.EnvelopeName) -> bmtp.BmtpSession:
    """With two messages on their way."""
    session = bmtp.BmtpService(bmtp.BmtpSettings(dialect, envelope)).session(TERMS)
    session.send(batch([b"a", b"b"]), KEY, False)
    return session


@pytest.mark.property
@given(
    stream=input_of_clients,
    greeting=st.sampled_from([HELLO, HELLO, HELLO, b""]),
    dialect=dialects,
    envelope=envelope_names,
    cut=sizes,
)
def test_any_input_means_the_same_however_it_is_cut(
    stream: bytes,
    greeting: bytes,
    dialect: bmtp.Dialect,
    envelope: bmtp.EnvelopeName,
    cut: list[int],
) -> None:
    """Acknowledgements of a read are told at its end, so their place among others may differ."""

    def found(stream: list[bytes]) -> tuple[list[bytes], list[bytes], bytes, bool]:
        commands, answers, closed = outcome(prepared(dialect, envelope), stream)
        acknowledged = [told for told in commands if told.startswith(b"acknowledge")]
        offsets = [offset for told in acknowledged for offset in told.split()[2:]]
        rest = [told for told in commands if not told.startswith(b"acknowledge")]
        return joined(rest), offsets, answers, closed

    assert found(list(pieces(greeting + stream, cut))) == found([greeting + stream])


def joined(commands: list[bytes]) -> list[bytes]:
    """Runs that only an acknowledgement stood between."""
    found: list[bytes] = []
    for told in commands:
        start, _, rest = told.partition(b": ")
        if found and found[-1].startswith(start + b": ") and told.startswith(b"publish"):
            found[-1] += b" | " + rest
        else:
            found.append(told)
    return found


answers = st.sampled_from(
    [
        b"\x20",
        b"\x60\x00\x00\x00\x2a",
        pubacks(0, b"\x01\x02"),
        pubacks(5, b"\x01"),
        b"\xd0",
        b"\xc0",
        b"\xe0",
        pub(b'{"msg_id":7,"producer_id":null,"consumer_id":42,"create":0,"data":"a"}'),
        pub(b'{"msg_id":7,"producer_id":null,"consumer_id":42,"create":0,"data":"a"}') * 3,
        pub(b'{"msg_id":7,"producer_id":"p","consumer_id":43,"create":0,"data":[1]}', 0x38),
        pub(b'{"consumer_id":42,"data":"/w==","encoding":"base64"}', 0x32),
        pub(b"\0\0\0\x2ax") * 2,
        b"\x30\x00\x05\x00\x00\x00\x01x",
        pub(b""),
        b"\x33",
        b"\x11",
    ]
)
input_of_brokers = st.lists(
    answers | answers.flatmap(broken) | st.binary(max_size=12), max_size=6
).map(b"".join)


@pytest.mark.property
@given(stream=input_of_brokers, dialect=dialects, envelope=envelope_names, cut=sizes)
def test_a_client_survives_any_broker(
    stream: bytes, dialect: bmtp.Dialect, envelope: bmtp.EnvelopeName, cut: list[int]
) -> None:
    """Nothing is raised, and nothing depends on the cuts."""
    whole = shown_events(bmtp.BmtpClientSession(dialect, envelope), [stream])
    assert shown_events(bmtp.BmtpClientSession(dialect, envelope), pieces(stream, cut)) == whole


# The send window


@pytest.mark.property
@given(
    st.lists(
        st.tuples(st.just("send"), st.integers(1, 100), st.sampled_from(["42", "43"]))
        | st.tuples(st.just("ack"), st.binary(max_size=60), st.just(""))
        | st.tuples(st.just("retract"), st.integers(0, 300), st.sampled_from(["42", "43"])),
        max_size=30,
    )
)
def test_the_window_against_a_model(
    actions: list[tuple[str, int | bytes, str]],
) -> None:
    window = Window()
    taken: dict[int, tuple[tuple[str, str], int] | None] = {}
    offset = 0
    for action, what, channel in actions:
        key = (channel, "")
        if action == "send" and isinstance(what, int):
            count = min(what, window.room)
            streams = window.take(key, range(offset, offset + count))
            assert len(streams) == count
            assert taken.keys().isdisjoint(streams)
            assert 0 not in streams
            taken |= {stream: (key, offset + index) for index, stream in enumerate(streams)}
            offset += count
        elif isinstance(what, bytes):
            found: dict[tuple[str, str], list[int]] = {}
            window.release(what, found)
            told = [taken.pop(stream) for stream in what if stream in taken]
            expected: dict[tuple[str, str], list[int]] = {}
            for message in told:
                if message is not None:
                    expected.setdefault(message[0], []).append(message[1])
            assert found == expected
        else:
            window.forget(key, [what])
            taken = {
                stream: None if message == (key, what) else message
                for stream, message in taken.items()
            }
        assert window.room == 255 - len(taken)


def test_a_message_that_is_sent_again_and_again_keeps_its_stream() -> None:
    client = bmtp.BmtpClientSession()
    bodies = client.bodies("42", [b"a", b"b", b"a"])

    def streams(again: bool) -> bytes:
        commands = connected().receive(client.publish(bodies, 2, again))
        return b"".join(bytes(command.once) for command in commands if isinstance(command, Publish))

    assert streams(again=False) == b"\x01\x02\x03"
    assert streams(again=True) == b"\x04\x05\x06"
    assert streams(again=True) == b"\x04\x05\x06"  # though they are not answered yet
    assert client.room == 255 - 6
    events(client, [pubacks(0, bytes(range(1, 7)))])
    assert streams(again=True) == b"\x04\x05\x06" and client.room == 255 - 3
    events(client, [pubacks(0, b"\x04\x05\x06")])
    for _ in range(85):  # every stream has another message now
        events(client, [pubacks(0, streams(again=False))])
    assert not set(b"\x04\x05\x06") & set(streams(again=True))


def test_sending_pauses_while_no_stream_is_free() -> None:
    session = connected()
    some = batch([b"%d" % number for number in range(300)])
    assert session.room(some.run) == 255
    (packets,), awaited = session.send(some.part(7, 7 + 255), KEY, False)
    assert list(awaited) == list(range(7, 262))
    got = [
        event for event in bmtp.BmtpClientSession().receive(packets) if isinstance(event, Delivered)
    ]
    receipts = [receipt for event in got for receipt in event.receipts]
    assert receipts == [pubacks(0, bytes([stream])) for stream in range(1, 256)]
    assert session.room(some.run) == 0
    # QoS 0 needs no stream id, so nothing holds it up.
    assert session.room(batch([b"x"], (("qos", "0"),)).run) > 1 << 60
    (command,) = session.receive(pubacks(0, b"\x03\x01"))
    assert command == Acknowledge(KEY, [9, 7])
    assert session.room(some.run) == 2
    (packets,), awaited = session.send(some.part(262, 264), KEY, False)
    assert (packets[1], list(awaited)) == (3, [262, 263])
    assert session.room(some.run) == 0
    with pytest.raises(ValueError, match="free streams"):
        session.send(some.part(264, 265), KEY, False)


# What is built once


@pytest.mark.parametrize("name", ["json", "binary"])
def test_packets_are_built_once(name: bmtp.EnvelopeName) -> None:
    quick = batch([b"a", b"bb"], (("qos", "0"),))
    first, second = (connected(envelope=name).send(quick, KEY, False) for _ in range(2))
    assert first[0][0] is second[0][0]
    sure = batch([b"a", b"b"])
    one = connected(envelope=name)
    one.send(batch([b"x"]), KEY, False)
    ((packets,), _), ((repeated,), _) = (
        session.send(sure, KEY, again)
        for session, again in ((one, False), (connected(envelope=name), True))
    )
    assert sure.run._others is None
    step = len(packets) // 2
    assert (packets[1::step], repeated[1::step]) == (b"\x02\x03", b"\x01\x02")
    assert (packets[0::step], repeated[0::step]) == (b"\x31\x31", b"\x39\x39")
    assert packets[2:step] == repeated[2:step]


def test_the_same_run_at_another_offset_is_another_message() -> None:
    run = batch([b"a"], (("qos", "0"),)).run
    (one,), _ = connected().send(Batch(7, 0, run), KEY, False)
    (other,), _ = connected().send(Batch(8, 0, run), KEY, False)
    assert (b'"msg_id":7' in one, b'"msg_id":8' in other) == (True, True)


@pytest.mark.property
@given(bodies=payloads, first=st.sampled_from([0x31, 0x39, 0x32]), data=st.data())
def test_stream_ids_are_put_where_they_belong(
    bodies: list[bytes], first: int, data: st.DataObject
) -> None:
    streams = data.draw(st.binary(min_size=len(bodies), max_size=len(bodies)))
    expected = b"".join(
        pub(body, first, stream) for body, stream in zip(bodies, streams, strict=True)
    )
    assert with_streams(encode_pubs(0x31, bodies, 4), first, streams) == expected


def test_many_packets_of_one_size_are_not_cut() -> None:
    stream = b"".join(pub(envelope(b"%03d" % number), stream=number % 256) for number in range(500))
    (command,) = connected().receive(stream)
    assert isinstance(command, Publish)
    assert isinstance(command.run.payloads, Tiles)
    assert list(command.run.payloads) == [b"%03d" % number for number in range(500)]
    assert command.answer == pubacks(0, bytes(number % 256 for number in range(500)))


# Messages that are too large


def test_what_is_skipped_is_counted_and_logged_once_per_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = bmtp.BmtpService(bmtp.BmtpSettings())
    session, other = service.session(TERMS), service.session(TERMS)
    other.send(batch([bytes(1 << 20)]), KEY, False)
    for topic in ("bmtp/42", "bmtp/42", "bmtp/43"):
        run = Run(topic, [b"x" * 70_000, b"y"], protocol="psmb")
        session.send(Batch(7, 0, run), KEY, False)
    session.send(batch([b'"' * 40_000] * 2), KEY, False)
    (counter,) = service.counters()
    assert (session.skipped, counter.count) == (5, 6)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "bmtp/42" in caplog.text
    assert "bmtp/43" in caplog.text


def test_a_run_with_nothing_that_fits_sends_nothing() -> None:
    buffers, awaited = connected().send(batch([bytes(1 << 20)]), KEY, False)
    assert (b"".join(buffers), list(awaited)) == (b"", [])


# States


def test_a_connection_is_established_by_conn() -> None:
    session = bmtp.BmtpService(bmtp.BmtpSettings()).session(TERMS)
    assert not session.established
    list(session.receive(HELLO[:-1]))
    assert not session.established
    list(session.receive(HELLO[-1:]))
    assert session.established
    assert list(session.receive(b"\xe0")) == [Close(b"", "the client said DISCONN")]
    assert not session.established
    assert session.farewell(Refusal(Code.UNAVAILABLE, "late")) == b""


def test_idle_connections_are_closed() -> None:
    session = bmtp.BmtpService(bmtp.BmtpSettings(idle_seconds=7.5)).session(TERMS)
    assert session.idle_after == 7.5
    assert session.sending_is_life
    reaction = session.idle(0)
    assert isinstance(reaction, Close)
    assert list(session.receive(HELLO)) == []


# What hostile input costs


def test_a_large_message_in_small_pieces() -> None:
    cut = list(pieces(pub(envelope(b"x" * 60_000)) * 20, [10]))

    def receive() -> None:
        session = connected(terms=Terms(PEER))
        found = [c for piece in cut for c in session.receive(piece)]
        assert len(found) == 20

    assert seconds(receive) < 2


@pytest.mark.parametrize(
    "data",
    [
        [b"a", b"bb"],
        [b"a"] * 15 + [b"bb"],
        [b"a"] * 17 + [b"bb"],
        [b"a", b"\\n"],
        [b"aa"] * 15 + [b"\\n"],
        [b"aa"] * 64 + [b"\\n"],
        [b"\xc3\xa9"] * 20 + [b"\xff"],
    ],
    ids=["sizes", "15-1", "17-1", "escapes", "15-escapes", "64-escapes", "not-utf-8"],
)
def test_data_that_defeat_the_search_for_runs(data: list[bytes]) -> None:
    count = 20_000 // len(data)
    stream = b"".join(pub(envelope(each)) for each in data) * count
    assert seconds(lambda: commands_of(connected(), stream)) < 1


@pytest.mark.parametrize(
    "packet",
    [
        lambda number: pub(envelope(b"x", number)),
        lambda number: pub(b'{"producer_id":%d,"consumer_id":1,"data":"x"}' % number),
        lambda number: pub(b'{%*s"consumer_id":1,"data":"x"}' % (number % 200, b"")),
        lambda number: pub(b'{"data":"x","consumer_id":%d}' % number),
        lambda number: pub(b"{}"),
    ],
    ids=["channels", "producers", "shapes", "suffixes", "malformed"],
)
def test_thousands_of_distinct_envelopes(packet: object) -> None:
    assert callable(packet)
    stream = b"".join(packet(number) for number in range(10_000))
    assert seconds(lambda: commands_of(connected(), stream)) < 1.5


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 65_000,
        b'{"a":' * 13_000,
        b"{" + b"".join(b'"%d":1,' % number for number in range(6000)),
        b"{" + b" " * 65_000,
        b'{"consumer_id":' + b"9" * 65_000,
        b'{"consumer_id":42,"data":[' + b"9" * 65_000 + b"]}",
        b'{"consumer_id":42,"data":"' + b"\\u00e9" * 10_800 + b'"}',
        b'"' + b"\\" * 65_000,
    ],
    ids=["arrays", "objects", "members", "spaces", "number", "data", "escapes", "backslashes"],
)
def test_long_envelopes_are_read_fast(body: bytes) -> None:
    assert len(body) < 65_532
    assert seconds(lambda: commands_of(connected(terms=Terms(PEER)), pub(body))) < 0.1


def count_delivered(run: Run) -> int:
    """How many of these messages a subscriber gets, at the end of all offsets and times."""
    last = Batch(2**63 - 1 - len(run), 2**63 - 1, run)
    (packets,), offsets = connected().send(last, ("4294967295", ""), False)
    assert len(packets) <= 65_536 * len(run)
    return len(offsets)


@pytest.mark.parametrize("producer", [b"", b'"producer_id":"p",', b'"producer_id":null,'])
@pytest.mark.parametrize(
    "data",
    [b'"%b"', b'["%b"]', b'"\\"\\u0001\\t%b"', b'"\\u00e9%b\\/"', '"é%b"'.encode(), b'"[%b]"'],
    ids=["text", "array", "escapes", "needless-escapes", "unicode", "array-as-text"],
)
def test_all_that_is_acknowledged_can_be_delivered(data: bytes, producer: bytes) -> None:
    """Whatever the size, the broker says no or has room for it in a subscriber's packet."""
    verdicts = []
    for size in range(65_330, 65_532):
        body = b'{"consumer_id":4294967295,%b"data":%b}' % (producer, data % (b"1" * size))
        if len(body) > 65_535:
            break
        for command in connected(terms=Terms(PEER)).receive(pub(body)):
            if isinstance(command, Publish):
                assert count_delivered(command.run) == 1
                verdicts.append(True)
            else:
                assert command == Respond(b"\x45\x01")
                verdicts.append(False)
    assert verdicts == sorted(verdicts, reverse=True)
    assert verdicts[0] and not verdicts[-1]


@pytest.mark.parametrize("size", [65_330, 65_422, 65_450])
def test_all_that_is_acknowledged_in_bulk_can_be_delivered(size: int) -> None:
    session = connected(terms=Terms(PEER))
    packets = [pub(envelope(b"%05d" % number + b"x" * (size - 5))) for number in range(40)]
    for command in session.receive(b"".join(packets)):
        if isinstance(command, Publish):
            assert count_delivered(command.run) == len(command.run)


def test_deep_nesting_in_a_payload_is_only_text() -> None:
    deep = b"[" * 30_000 + b"]" * 30_000
    (packets,), _ = connected().send(batch([deep]), KEY, False)
    (event,) = bmtp.BmtpClientSession().receive(packets)
    assert isinstance(event, Delivered)
    assert list(event.payloads) == [deep]


def test_what_a_connection_remembers_is_bounded() -> None:
    session = connected()

    def flood() -> object:
        for number in range(2000):
            spaces = b" " * (number % 200)
            list(session.receive(pub(b'{%b"consumer_id":%d,"data":"x"}' % (spaces, number))))
        return session

    assert memory_kept(flood) < 100_000
    assert len(session._publishing._senders) <= publishing.MOST_SENDERS


def test_an_idle_connection_is_small() -> None:
    assert memory_kept(lambda: [connected() for _ in range(100)]) < 100 * 4096


def test_half_a_packet_keeps_no_more_than_itself() -> None:
    session = connected()

    def half() -> object:
        list(session.receive(b"\x31\x01\xff\xff" + b"x" * 60_000))
        return session

    assert memory_kept(half) < 70_000
