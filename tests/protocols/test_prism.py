"""Prism beyond its vectors: names, signatures, queues, any input, any cut, and what it costs."""

import base64
import hashlib
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headwater.commands import Acknowledge, Close, Consume, Identify, Publish, Respond
from headwater.errors import Code, HeadwaterError, Refusal
from headwater.filters import BindingFilter, LevelFilter
from headwater.gate import KnownApp
from headwater.message import Batch, Run
from headwater.protocols.base import Answered, Delivered, Ready, Terms
from headwater.protocols.prism import codec as prism
from headwater.protocols.websocket import BINARY, PING, TEXT, FrameReader, masked_frame
from tests.protocols.helpers import (
    broken,
    commands_of,
    events,
    memory_kept,
    outcome,
    payloads,
    pieces,
    seconds,
    shown_events,
    shown_unmasked,
    sizes,
)
from tests.protocols.vectors import PEER, false_claim, files, merged_deliveries
from tests.test_filters import bound

APP, SECRET, NOW = "xkg3ydnm", "56dygmyhrfuhuwrdst3c", 1400567172
TERMS = Terms(PEER, now=NOW)
APPS = {APP: KnownApp(prism.NAME, SECRET)}
SERVICE = prism.PrismService(prism.PrismSettings(), APPS)
KEY = ("default", "")
NONCE = b"the sample nonce"

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
keys = st.text("ab./é%", min_size=1, max_size=20)
types = st.sampled_from(["", "text/plain", 'a"b', "é"])


def handshake(client: prism.PrismClientSession, app: str = APP, secret: str = SECRET) -> bytes:
    target = prism.signed_target("/api/notify", app, secret, NOW)
    return client.request("localhost", target, (("User-Agent", "test"),))


def opened(service: prism.PrismService = SERVICE, terms: Terms = TERMS) -> prism.PrismSession:
    """A session whose handshake is done."""
    session = service.session(terms)
    (who,) = session.receive(handshake(prism.PrismClientSession(1 << 20, NONCE)))
    assert isinstance(who, Identify)
    return session


def client() -> prism.PrismClientSession:
    """A client whose handshake is done."""
    made = prism.PrismClientSession(1 << 20, NONCE)
    (who,) = SERVICE.session(TERMS).receive(handshake(made))
    assert isinstance(who, Identify)
    assert list(made.receive(who.answer)) == [Ready(), Answered()]
    return made


def plain(*commands: bytes, opcode: int = BINARY) -> bytes:
    return b"".join(masked_frame(opcode, command, bytes(4)) for command in commands)


# Names


@pytest.mark.property
@given(one=names, other=names)
def test_keys_and_topics_are_the_same_names(one: str, other: str) -> None:
    assert prism.key_of(prism.topic_of(one)) == one
    assert prism.topic_of(prism.key_of(one)) == one
    assert (prism.topic_of(one) == prism.topic_of(other)) is (one == other)
    assert len(prism.topic_of(one).encode()) == len(one.encode())


def test_words_are_levels() -> None:
    assert prism.topic_of("order.new") == "order/new"
    assert prism.topic_of("a/b..c") == "a.b//c"


words = st.sampled_from(["a", "b", "", "a/b", "dead"])
routing_keys = st.lists(words, min_size=1, max_size=5).map(".".join).filter(bool)
bindings = st.lists(words | st.sampled_from("*#"), min_size=1, max_size=5).map(".".join)


@pytest.mark.property
@given(binding=bindings.filter(bool), key=routing_keys)
def test_bindings_take_what_they_say_but_no_dead_letters(binding: str, key: str) -> None:
    wanted, found = binding.split("."), key.split(".")
    expected = bound(wanted, found) and (found[0] != "dead" or wanted[0] == "dead")
    assert prism.filter_of(binding).matches(prism.topic_of(key)) is expected


# Signatures


def md5(*parts: str) -> str:
    return hashlib.md5("&".join(parts).encode(), usedforsecurity=False).hexdigest().upper()


def test_the_signature_of_the_document() -> None:
    query = [("client_id", APP), ("sign_time", "1400567172"), ("sign_method", "md5")]
    expected = "D6174649DEDDF15FBE2D614FFDDF77A8"
    assert prism.sign(SECRET, "GET", "/api/notify", (), [*query, ("sign", "x")]) == expected


@pytest.mark.parametrize(
    ("arguments", "between"),
    [
        pytest.param(("GET", "/a"), ("GET", "%2Fa", "", "", ""), id="path"),
        pytest.param(
            ("POST", "/a b/ü~"), ("POST", "%2Fa%20b%2F%C3%BC~", "", "", ""), id="path-utf8"
        ),
        pytest.param(
            ("GET", "/", (), [("b", "2"), ("a", "x y"), ("sign", "S"), ("a", "1")]),
            ("GET", "%2F", "", "a%3D1%26a%3Dx%20y%26b%3D2", ""),
            id="query-sorted-without-sign",
        ),
        pytest.param(
            ("GET", "/", (), [("a-", "1"), ("a", "2"), ("B", "3")]),
            ("GET", "%2F", "", "B%3D3%26a%3D2%26a-%3D1", ""),
            id="query-sorted-by-name",
        ),
        pytest.param(
            ("GET", "/", (), [("é", "&=%+"), ("_.-~", "")]),
            ("GET", "%2F", "", "_.-~%3D%26%C3%A9%3D%26%3D%25%2B", ""),
            id="query-encoded-once",
        ),
        pytest.param(
            (
                "GET",
                "/",
                [
                    ("X-Api-B", "2"),
                    ("Host", "h"),
                    ("Authorization", "Bearer a/b="),
                    ("X-Api-A", "1"),
                ],
            ),
            ("GET", "%2F", "Authorization%3DBearer%20a%2Fb%3D%26X-Api-A%3D1%26X-Api-B%3D2", "", ""),
            id="headers",
        ),
        pytest.param(
            ("GET", "/", [("X-Apix", "1"), ("x-api-a", "2"), ("authorization", "3")]),
            ("GET", "%2F", "", "", ""),
            id="other-headers",
        ),
        pytest.param(
            ("POST", "/", (), (), b"a=1&b=\xff"),
            ("POST", "%2F", "", "", "a%3D1%26b%3D%FF"),
            id="body",
        ),
    ],
)
def test_signatures(arguments: tuple[Any, ...], between: tuple[str, ...]) -> None:
    assert prism.sign("s3cret", *arguments) == md5("s3cret", *between, "s3cret")


pairs = st.lists(st.tuples(names, names), max_size=4)


@pytest.mark.property
@given(data=st.data(), query=pairs, extra=names)
def test_the_order_of_parameters_does_not_matter(
    data: st.DataObject, query: list[tuple[str, str]], extra: str
) -> None:
    shuffled = data.draw(st.permutations(query))
    signed = prism.sign(SECRET, "GET", "/", (), query)
    assert prism.sign(SECRET, "GET", "/", (), [*shuffled, ("sign", extra)]) == signed


@pytest.mark.property
@given(app=names.filter(bool), secret=names.filter(bool), wrong=names)
def test_whoever_knows_the_secret_is_let_in(app: str, secret: str, wrong: str) -> None:
    assume(wrong != secret)
    apps = {app: KnownApp(prism.NAME, secret)}
    assert knock(apps, app, secret).startswith(b"HTTP/1.1 101 ")
    assert knock(apps, app, wrong).startswith(b"HTTP/1.1 401 ")
    assert knock({app: KnownApp("other", secret)}, app, secret).startswith(b"HTTP/1.1 401 ")


def knock(apps: dict[str, KnownApp], app: str, secret: str) -> bytes:
    """What a client is answered, by a broker that knows these apps."""
    session = prism.PrismService(prism.PrismSettings(), apps).session(TERMS)
    commands = session.receive(handshake(client(), app, secret))
    who = next(commands)
    assert isinstance(who, Identify)
    error = false_claim(who, apps)
    if error is None:
        return who.answer
    refused = session.refuse(who, error)
    assert isinstance(refused, Close)
    assert not list(commands)
    assert not session.established
    return refused.answer


def test_refusals_do_not_tell_whether_a_client_exists() -> None:
    answers = {knock(APPS, app, "x") for app in (APP, "nobody")}
    assert len(answers) == 1
    assert SECRET.encode() not in answers.pop()


def test_the_published_secret_is_known_as_such() -> None:
    """Settings given directly, as here, may use it; a configuration may not."""
    assert SECRET in prism.EXAMPLE_SECRETS


# Queues


def test_the_default_queue_takes_every_key_but_dead_letters() -> None:
    spec = SERVICE.queue(APP, "")
    assert spec == SERVICE.queue(APP, "default")
    assert (spec.name, spec.dead_topic) == (f"prism/{APP}/default", f"dead/{APP}/default")
    assert (spec.prefetch, spec.ack_seconds, spec.max_deliveries) == (1, 60.0, 16)
    assert spec.shared
    assert not spec.from_start
    assert spec.backlog_seconds == 7 * 86400
    (wanted,) = spec.filters
    assert wanted.matches("order/new")
    assert not wanted.matches(spec.dead_topic)


def test_a_named_queue_takes_the_key_of_its_name() -> None:
    for name in ("order.new", "order.*", "#", "dead.letters"):
        (wanted,) = SERVICE.queue(APP, name).filters
        assert wanted == LevelFilter.exact(prism.topic_of(name))


def with_queue(name: str, *bindings: str) -> prism.PrismService:
    """Of the app, with limits of its own."""
    queue = prism.PrismQueue(APP, name, bindings, prefetch=7, ack_seconds=5.0, max_deliveries=16)
    return prism.PrismService(prism.PrismSettings(queues=(queue,)), {})


@pytest.mark.parametrize("name", ["default", ""])
def test_a_queue_can_be_bound(name: str) -> None:
    service = with_queue(name, "order.#", "*.new", "order.#")
    spec = service.queue(APP, "")
    assert [each.text for each in spec.filters] == ["order/#", "*/new"]
    assert all(isinstance(each, BindingFilter) for each in spec.filters)
    assert (spec.prefetch, spec.ack_seconds, spec.max_deliveries) == (7, 5.0, 16)
    assert service.queue(APP, "other").prefetch == 1
    assert service.queue("another", "").prefetch == 1


def test_how_long_a_message_waits_while_nobody_consumes() -> None:
    """A limit is for the default queue, which nobody has asked for, and for whoever chooses one."""
    chosen = [
        prism.PrismQueue(app, name, prefetch=1, ack_seconds=5.0, max_deliveries=16, backlog_age=age)
        for app, name, age in (("own", "", 60.0), ("own", "orders", 30.0), ("old", "", None))
    ]
    settings = prism.PrismSettings(default_backlog_age=90.0, queues=tuple(chosen))
    service = prism.PrismService(settings, {})
    found = {
        (app, name): service.queue(app, name).backlog_seconds
        for app in ("own", "old", "new")
        for name in ("", "orders")
    }
    assert found == {
        ("own", ""): 60.0,
        ("own", "orders"): 30.0,
        ("old", ""): None,
        ("old", "orders"): None,
        ("new", ""): 90.0,
        ("new", "orders"): None,
    }


def test_dead_letters_can_be_asked_for_by_name() -> None:
    (wanted,) = with_queue("graves", "dead.#").queue(APP, "graves").filters
    assert wanted.matches(f"dead/{APP}/default")


@pytest.mark.property
@given(one=st.tuples(names, names), other=st.tuples(names, names))
def test_each_queue_of_each_app_has_its_own_place(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    specs = [SERVICE.queue(*each) for each in (one, other)]
    same = one[0] == other[0] and (one[1] or "default") == (other[1] or "default")
    assert (specs[0].name == specs[1].name) is same
    assert (specs[0].dead_topic == specs[1].dead_topic) is same
    assert specs[0].dead_topic.count("/") == 2


# Round trips


@pytest.mark.property
@given(key=keys, run=payloads, content_type=types, cut=sizes)
def test_what_a_client_publishes_arrives(
    key: str, run: list[bytes], content_type: str, cut: list[int]
) -> None:
    topic = prism.topic_of(key)
    headers = (("content-type", content_type),) if content_type else ()
    (command,) = commands_of(opened(), client().publish(topic, run, headers), cut)
    assert isinstance(command, Publish)
    assert list(command.run.payloads) == run
    assert (command.run.topic, command.run.headers) == (topic, headers)
    assert (command.run.publisher, command.run.protocol) == (APP, "prism")
    assert command.answer == b""


@pytest.mark.property
@given(name=keys, cut=sizes)
def test_what_a_client_consumes_arrives(name: str, cut: list[int]) -> None:
    (command,) = commands_of(opened(), client().consume(name), cut)
    assert isinstance(command, Consume)
    assert command.queue == SERVICE.queue(APP, name)
    assert command.key == (name, "")


@pytest.mark.property
@given(
    key=keys,
    run=payloads,
    content_type=types,
    numeric=st.booleans(),
    offset=st.integers(0, 2**63),
    data=st.data(),
    cut=sizes,
)
def test_what_the_broker_sends_arrives_and_is_acknowledged(
    key: str,
    run: list[bytes],
    content_type: str,
    numeric: bool,
    offset: int,
    data: st.DataObject,
    cut: list[int],
) -> None:
    session = opened(prism.PrismService(prism.PrismSettings(numeric_tags=numeric), APPS))
    topic = prism.topic_of(key)
    headers = (("content-type", content_type),) if content_type else ()
    batch = Batch(offset, 0, Run(topic, run, protocol="bpsp", headers=headers))
    buffers, awaited = session.send(batch, KEY, False)
    assert list(awaited) == list(range(offset, offset + len(run)))
    receiver = client()
    found = [e for piece in pieces(b"".join(buffers), cut) for e in receiver.receive(piece)]
    delivered = [event for event in found if isinstance(event, Delivered)]
    assert {(each.topic, each.headers) for each in delivered} == {(topic, headers)}
    assert [payload for each in delivered for payload in each.payloads] == run
    receipts = [receipt for each in delivered for receipt in each.receipts]
    order = data.draw(st.permutations(range(len(run))))
    answer = b"".join(receipts[index] for index in order)
    (command,) = session.receive(answer)
    assert isinstance(command, Acknowledge)
    assert list(command.offsets) == [offset + index for index in order]
    assert not list(session.receive(answer))
    assert session.unknown_tags == len(run)


@pytest.mark.property
@given(
    key=names.filter(bool),
    run=st.lists(st.binary(max_size=20) | names.map(str.encode), min_size=1, max_size=20),
    content_type=names,
    second=st.integers(0, 2**33),
)
def test_every_message_is_the_json_object_of_the_document(
    key: str, run: list[bytes], content_type: str, second: int
) -> None:
    """With these members in this order and no spaces, as a plain encoder would write them."""
    headers = (("kind", "x"), ("content-type", content_type))
    made = Run(prism.topic_of(key), run, protocol="psmb", headers=headers)
    (frames,), _ = opened().send(Batch(0, second * 1_000_000 + 5, made), KEY, True)
    reader = FrameReader(1 << 20, masked=False)
    expected = []
    for tag, payload in enumerate(run, 1):
        shown: dict[str, object] = {"time": second, "tag": str(tag), "key": key}
        try:
            shown["body"] = payload.decode()
        except UnicodeDecodeError:
            shown["body"] = base64.b64encode(payload).decode()
            shown["encoding"] = "base64"
        if content_type:
            shown["type"] = content_type
        text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
        expected.append((TEXT, text.encode()))
    assert reader.receive(frames) == expected
    assert reader.failed is None


def test_a_pong_answers_all_that_came_before_its_ping() -> None:
    session, sender = opened(), client()
    stream = sender.publish("a", [b"1"]) + sender.ping()
    publish, pong = session.receive(stream)
    assert isinstance(publish, Publish)
    assert isinstance(pong, Respond)
    assert list(sender.receive(pong.answer)) == [Answered()]


@pytest.mark.parametrize(
    ("topic", "payload", "headers", "code"),
    [
        ("", b"", (), Code.MALFORMED),
        ("k" * 257, b"", (), Code.TOO_LARGE),
        ("k", bytes(65_537), (), Code.TOO_LARGE),
        ("k", b"", (("content-type", "t" * 257),), Code.TOO_LARGE),
        ("k", b"", (("kind", "x"),), Code.MALFORMED),
    ],
)
def test_a_client_says_what_the_broker_would_not_take(
    topic: str, payload: bytes, headers: tuple[tuple[str, str], ...], code: Code
) -> None:
    with pytest.raises(Refusal) as refused:
        client().publish(topic, [payload], headers)
    assert refused.value.code is code


def test_a_client_says_that_a_queue_has_too_long_a_name() -> None:
    with pytest.raises(HeadwaterError):
        client().consume("q" * 257)


# States


def test_a_connection_is_established_by_its_handshake() -> None:
    session = SERVICE.session(TERMS)
    request = handshake(client())
    list(session.receive(request[:-1]))
    assert not session.established
    list(session.receive(request[-1:]))
    assert session.established
    assert session.user_agent == "test"
    assert session.idle_after is None


def test_what_a_client_calls_itself_is_text_whatever_it_sends() -> None:
    session = SERVICE.session(TERMS)
    list(session.receive(handshake(client()).replace(b": test", b": \xc4\xe3")))
    assert session.user_agent == "\N{REPLACEMENT CHARACTER}" * 2


def test_what_is_forgotten_takes_no_memory() -> None:
    session = opened()
    run = Run("a", [b"x"] * 1000, protocol="psmb")
    for index in range(10):
        session.send(Batch(index * 1000, 0, run), KEY, False)
        session.retract(KEY, range(index * 1000, index * 1000 + 999))
    assert len(session._held) == 10


# Any input

PUBLISH = plain(*prism.publish("a.b", [b"1"]))
requests = st.sampled_from(
    [
        PUBLISH,
        PUBLISH * 20,
        plain(*prism.publish("a.b", [b"22", b"", b"333"], "text")),
        plain(*prism.publish("a.b", [b"1"]), opcode=TEXT),
        plain(prism.consume(), prism.consume("q")),
        plain(b"\x031", b"\x032", b"\x0399"),
        plain(b"\x031", b"\x03"),
        plain(b"\x01\x01\x01"),
        plain(b""),
        plain(b"ping", opcode=PING),
        b"\x82\xff\x00\x00\x00\x00\x00\x10\x00\x00",
    ]
)
input_of_clients = st.lists(
    requests | requests.flatmap(broken) | st.binary(max_size=12), max_size=6
)


def waiting() -> prism.PrismSession:
    session = opened()
    session.send(Batch(5, 0, Run("a", [b"x", b"y"], protocol="psmb")), KEY, False)
    return session


@pytest.mark.property
@given(stream=input_of_clients.map(b"".join), cut=sizes)
def test_any_input_means_the_same_however_it_is_cut(stream: bytes, cut: list[int]) -> None:
    assert outcome(waiting(), pieces(stream, cut)) == outcome(waiting(), [stream])


@pytest.mark.property
@given(data=st.data(), cut=sizes)
def test_any_handshake_means_the_same_however_it_is_cut(
    data: st.DataObject, cut: list[int]
) -> None:
    request = handshake(client())
    stream = data.draw(broken(request) | st.just(request) | st.binary(max_size=40))
    whole = outcome(SERVICE.session(TERMS), [stream])
    assert outcome(SERVICE.session(TERMS), pieces(stream, cut)) == whole


def text(content: str) -> bytes:
    return bytes((0x81, len(content.encode()))) + content.encode()


answers = st.sampled_from(
    [
        text('{"time":1,"tag":"1","key":"a.b","body":"x"}'),
        text('{"time":1,"tag":2,"key":"a.b","body":"y","type":"t"}'),
        text('{"time":1,"tag":"3","key":"a","body":"/w==","encoding":"base64"}'),
        text('{"time":1,"tag":"3","key":"a","body":"/w","encoding":"base64"}'),
        text('{"tag":"1","key":"\\ud800","body":"x"}'),
        text('{"tag":"1","key":"a","body":"\\ud800"}'),
        text('{"tag":"\\ud800","key":"a","body":""}'),
        text('{"tag":true,"key":"a","body":""}'),
        text('{"tag":null,"key":[],"body":{}}'),
        text("[" * 120),
        text("1" * 100),
        b"\x8a\x00",
        b"\x89\x00",
        b"\x88\x02\x03\xe8",
    ]
)
input_of_brokers = st.lists(answers | answers.flatmap(broken) | st.binary(max_size=12), max_size=6)


@pytest.mark.property
@given(stream=input_of_brokers.map(b"".join), cut=sizes)
def test_a_client_survives_any_broker(stream: bytes, cut: list[int]) -> None:
    """Nothing is raised, and nothing depends on the cuts."""
    whole = shown_unmasked(client(), [stream])
    assert shown_unmasked(client(), pieces(stream, cut)) == whole


def test_json_that_is_nested_too_deeply_is_no_message() -> None:
    deep = b"[" * 200_000
    frame = b"\x81\x7f" + len(deep).to_bytes(8, "big") + deep
    assert shown_events(client(), [frame]) == [b"end"]


def test_messages_that_come_together_are_delivered_together() -> None:
    """Also to a client: one event for all of them, and a receipt for each."""
    run = Run("a", [b"%d" % index for index in range(50)], protocol="psmb")
    buffers, _ = opened().send(Batch(0, 0, run), KEY, False)
    (event,) = events(client(), [b"".join(buffers)])
    assert isinstance(event, Delivered)
    (event,) = client().receive(b"".join(buffers))
    assert isinstance(event, Delivered)
    assert len(event.payloads) == len(event.receipts) == 50
    assert list(merged_deliveries([event]))


# What it costs


def test_what_comes_in_one_read_is_few_commands() -> None:
    session = opened()
    session.send(Batch(0, 0, Run("a", [b"x"] * 1000, protocol="psmb")), KEY, False)
    acks = plain(*[b"\x03%d" % tag for tag in range(1, 1001)])
    bodies = [b"x" * (index % 7) for index in range(1000)]
    commands = list(session.receive(acks + plain(*prism.publish("a", bodies))))
    assert [type(command) for command in commands] == [Acknowledge, Publish]


@pytest.mark.parametrize(
    "commands",
    [
        [*prism.publish("a", [b"1"]), *prism.publish("b", [b"1"])],
        [*prism.publish("a", [b"1"]), b"\x031"],
        [*prism.publish("a", [b"1", b"22"])],
        [b"\x031"],
        [*prism.publish("k" * 256, [b"1"]), *prism.publish("k" * 255 + "l", [b"1"])],
    ],
    ids=["keys", "kinds", "sizes", "unknown-tags", "long-keys"],
)
def test_input_that_defeats_batches(commands: list[bytes]) -> None:
    stream = plain(*commands) * (20_000 // len(commands))
    session = opened()

    def receive() -> None:
        for _ in session.receive(stream):
            pass

    assert seconds(receive) < 0.5


def test_a_large_message_in_small_pieces() -> None:
    stream = plain(*prism.publish("a", [bytes(65_536)])) * 20
    cut = list(pieces(stream, [100]))

    def receive() -> None:
        session = opened()
        found = [command for piece in cut for command in session.receive(piece)]
        assert len(found) == 20

    assert seconds(receive) < 1


def test_a_size_is_not_believed_before_its_bytes_arrive() -> None:
    def announce() -> prism.PrismSession:
        session = opened()
        assert not list(session.receive(b"\x82\xff\x00\x00\x00\x00\x00\x01\x01\x00\x00"))
        return session

    assert memory_kept(announce) < 100_000


def test_every_vector_of_this_protocol_uses_the_published_example() -> None:
    """So no other secret can be learned from them."""
    (file,) = [file for file in files() if file.protocol == "prism"]
    assert set(file.settings["apps"].values()) <= prism.EXAMPLE_SECRETS
