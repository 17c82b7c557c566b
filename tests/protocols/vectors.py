r"""Wire vectors: data files that say what one side sends and what the other makes of it.

A file in `tests/vectors` belongs to one protocol; adding a protocol means adding a file.

    protocol = "psmb"       its name in the registry
    greeting = '...'        what the broker says first, if anything
    next = '...'            the beginning of a frame that the client could send next

    [[vector]]              the broker's side of a conversation
    name = "pub"            unique in its file; the protocol's page refers to it
    clause = "II.1"         the sentence of the document that it tests
    after = "handshake"     this vector is played first
    terms = { message_bytes = 100 }
    settings = { ... }      of the protocol; a file may have terms and settings for all its vectors
    next = '...'            instead of the file's, for this vector and those after it
    steps = [ {...}, ... ]  or the keys of a single step right here

    [[client]]              the client's side: name, clause, after and steps

A step of a vector has one of these, which says what happens:

    send = '...'            the client sends bytes
    deliver = {...}         a batch for it: topic, payloads, offset, publisher, headers, and the
                            keys of the subscriptions that want it as `to`
    offer = {...}           a batch from a queue that it consumes: as above, with the `key` of the
                            queue, and `again` if it may have been delivered before
    retract = {...}         `key` and `offsets` of messages that are no longer its to acknowledge
    idle = 7                nothing happened for a while, and all before offset 7 was sent
    farewell = "code: why"  the broker ends the connection

and these, which say what comes of it:

    answer = '...'          the bytes that the client receives; none if left out
    awaits = [7, 8]         of an offer: the offsets that the client has to acknowledge
    commands = ["..."]      what the broker is told to do, besides answering (see `told`)
    closed = true           the connection has ended
    refuse = "code: why"    not an outcome: the broker declines what this step asks for

A step of a client vector has `receive`, bytes from the broker, and `events` (see `shown`).

Text stands for its UTF-8 bytes. Escapes: \xNN, \0 (one zero byte), \\, \{3*ab} (ababab), and in
expectations \? (any byte) and \* (any text, for prose that may be reworded).

Each vector is fed whole, byte by byte, and with more bytes behind it: the beginning of another
frame while the connection is open, garbage once it is closed. The outcome must be the same.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from headwater.commands import (
    Acknowledge,
    Advertise,
    Close,
    Command,
    Confirm,
    Consume,
    Identify,
    Password,
    Publish,
    Respond,
    SharedSecret,
    Signature,
    Subscribe,
    Unsubscribe,
)
from headwater.errors import Code, Refusal
from headwater.filters import RegexFilter
from headwater.gate import KnownApp
from headwater.identity.gatekeeper import app_that
from headwater.message import Batch, Headers, Run
from headwater.protocols.base import (
    Answered,
    ClientSession,
    Delivered,
    Ended,
    Event,
    Pinged,
    Ready,
    Service,
    Terms,
)
from headwater.protocols.bmtp import codec as bmtp
from headwater.protocols.bpsp import codec as bpsp
from headwater.protocols.crystal import codec as crystal
from headwater.protocols.prism import codec as prism
from headwater.protocols.psmb import codec as psmb
from headwater.registry import REGISTRY

FOLDER = Path(__file__).parent.parent / "vectors"
PEER = "192.0.2.1:5000"
GARBAGE = b"\x00\xff\r\nMSG\x08 is no frame in any protocol"

#: The client's codec of each protocol.
CLIENTS: dict[str, Callable[[], ClientSession]] = {
    psmb.NAME: lambda: psmb.PsmbClientSession(1000, "pattern"),
    bmtp.NAME: bmtp.BmtpClientSession,
    bpsp.NAME: lambda: bpsp.BpspClientSession(1000),
    prism.NAME: lambda: prism.PrismClientSession(1000, b"the sample nonce"),
    crystal.NAME: lambda: crystal.CrystalClientSession(1000, b"the sample nonce"),
}


class Feed(Enum):
    WHOLE = "whole"
    BYTES = "byte by byte"
    TRAILING = "with trailing bytes"

    def cut(self, data: bytes) -> Iterable[bytes]:
        if self is Feed.BYTES:
            return [data[index : index + 1] for index in range(len(data))]
        return [data]


# What is in a file


@dataclass(frozen=True, slots=True)
class Key:
    """A subscription, as far as a codec is told."""

    key: tuple[str, str]
    durable: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    data: bytes


@dataclass(frozen=True, slots=True)
class Deliver:
    batch: Batch
    to: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    batch: Batch
    key: tuple[str, str]
    again: bool


@dataclass(frozen=True, slots=True)
class Retract:
    key: tuple[str, str]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Idle:
    position: int


@dataclass(frozen=True, slots=True)
class Farewell:
    error: Refusal


What = Send | Deliver | Offer | Retract | Idle | Farewell


@dataclass(frozen=True, slots=True)
class Step:
    """What happens, and what comes of it."""

    what: What
    answer: str = ""
    awaits: tuple[int, ...] = ()
    told: tuple[str, ...] = ()  # commands of the broker's side, events of the client's
    closed: bool = False
    refuse: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Vector:
    protocol: str
    name: str
    clause: str
    steps: tuple[Step, ...]
    after: "Vector | None" = None
    terms: Terms = field(default_factory=lambda: Terms(PEER))
    settings: dict[str, Any] = field(default_factory=dict)
    next: bytes = b""

    @property
    def introduction(self) -> tuple[Step, ...]:
        """The steps of the vectors that go before."""
        return (*self.after.introduction, *self.after.steps) if self.after else ()


@dataclass(frozen=True, slots=True)
class File:
    protocol: str
    greeting: str
    vectors: tuple[Vector, ...]
    clients: tuple[Vector, ...]
    terms: Terms
    settings: Any


def load(path: Path) -> File:
    table = tomllib.loads(path.read_text())
    protocol, greeting = table.pop("protocol"), table.pop("greeting", "")
    start = unescape(table.pop("next", ""))
    common = table.pop("terms", {}), table.pop("settings", {})
    vectors = _vectors(protocol, table.pop("vector", []), start, *common)
    clients = _vectors(protocol, table.pop("client", []), b"", *common)
    assert not table, f"{path.name}: unknown {', '.join(table)}"
    terms, settings = common
    return File(protocol, greeting, vectors, clients, Terms(PEER, **terms), settings)


def files() -> list[File]:
    return [load(path) for path in sorted(FOLDER.glob("*.toml"))]


def _vectors(
    protocol: str,
    tables: list[dict[str, Any]],
    start: bytes,
    terms: dict[str, Any],
    settings: dict[str, Any],
) -> tuple[Vector, ...]:
    known: dict[str, Vector] = {}
    for table in tables:
        name = table.pop("name")
        assert name not in known, f"{protocol}: {name} is there twice"
        after = known[table.pop("after")] if "after" in table else None
        inherited = after.next if after else start
        known[name] = Vector(
            protocol,
            name,
            table.pop("clause"),
            after=after,
            terms=Terms(PEER, **(terms | table.pop("terms", {}))),
            settings=settings | table.pop("settings", {}),
            next=unescape(table.pop("next")) if "next" in table else inherited,
            steps=tuple(_step(name, step) for step in table.pop("steps", [table])),
        )
    return tuple(known.values())


def _step(name: str, table: dict[str, Any]) -> Step:
    table = dict(table)
    step = Step(
        _what(table),
        answer=table.pop("answer", ""),
        awaits=tuple(table.pop("awaits", ())),
        told=tuple(table.pop("commands", table.pop("events", ()))),
        closed=table.pop("closed", False),
        refuse=_refusal(table.pop("refuse")) if "refuse" in table else None,
    )
    assert not table, f"{name}: unknown {', '.join(table)}"
    return step


def _what(table: dict[str, Any]) -> What:
    (kind,) = table.keys() & {
        "send",
        "receive",
        "deliver",
        "offer",
        "retract",
        "idle",
        "farewell",
    }
    value = table.pop(kind)
    if kind in ("send", "receive"):
        return Send(unescape(value))
    if kind == "idle":
        return Idle(value)
    if kind == "farewell":
        return Farewell(_refusal(value))
    if kind == "retract":
        return Retract(tuple(value["key"]), tuple(value["offsets"]))
    key, again = tuple(value.pop("key", ("", ""))), value.pop("again", False)
    to = tuple(Key((pattern, tag)) for pattern, tag in value.pop("to", [["", ""]]))
    payloads = [unescape(payload) for payload in value.pop("payloads")]
    headers = tuple(
        (unescape(key).decode(), unescape(text).decode()) for key, text in value.pop("headers", ())
    )
    offset, timestamp = value.pop("offset", 0), value.pop("timestamp", 0)
    run = Run(unescape(value.pop("topic")).decode(), payloads, headers=headers, **value)
    batch = Batch(offset, timestamp, run)
    return Offer(batch, key, again) if kind == "offer" else Deliver(batch, to)


def _refusal(text: str) -> Refusal:
    code, _, sentence = text.partition(": ")
    return Refusal(Code(code), unescape(sentence).decode())


# Text and bytes

_ESCAPE = re.compile(r"\\(?:x(?P<hex>[0-9a-f]{2})|\{(?P<count>\d+)\*(?P<what>[^}]*)\}|(?P<one>.))")
_ONE = {"0": b"\0", "\\": b"\\"}
_WILDCARDS = {"?": b".", "*": b"[^\0]*?"}


def unescape(text: str) -> bytes:
    return _convert(text, lambda literal: literal, {})


def pattern_of(text: str) -> re.Pattern[bytes]:
    """The expression that an expected text stands for."""
    return re.compile(_convert(text, re.escape, _WILDCARDS), re.DOTALL)


def _convert(text: str, literal: Callable[[bytes], bytes], special: dict[str, bytes]) -> bytes:
    parts, position = [], 0
    for escape in _ESCAPE.finditer(text):
        parts.append(literal(text[position : escape.start()].encode()))
        position = escape.end()
        if escape["hex"]:
            parts.append(literal(bytes.fromhex(escape["hex"])))
        elif escape["count"]:
            parts.append(literal(unescape(escape["what"]) * int(escape["count"])))
        elif escape["one"] in special:
            parts.append(special[escape["one"]])
        else:
            parts.append(literal(_ONE[escape["one"]]))
    return b"".join([*parts, literal(text[position:].encode())])


def escape(data: bytes) -> str:
    """Bytes as they are written in a file."""
    return re.sub(
        r"[^ -~]|\\",
        lambda found: {"\0": "\\0", "\\": "\\\\"}.get(found[0], f"\\x{ord(found[0]):02x}"),
        data.decode("latin-1"),
    )


def expect(expected: Iterable[str], actual: Iterable[bytes], what: str) -> None:
    wanted, got = list(expected), list(actual)
    same = len(wanted) == len(got) and all(
        pattern_of(text).fullmatch(data) for text, data in zip(wanted, got, strict=True)
    )
    assert same, f"{what}\n  expected {wanted}\n  got      {[escape(data) for data in got]}"


def told(command: Command) -> bytes:
    """A command in words; payloads as they are. Answers are not told, they are seen."""
    if isinstance(command, Publish):
        run = command.run
        by = b"" if run.publisher == PEER else f" by {run.publisher}".encode()
        echo = b"" if command.echo else b", not to itself"
        once = (b", once" if command.once else b"") + (b", again" if command.again else b"")
        return b"publish %b%b%b%b%b: %b" % (
            run.topic.encode(),
            by,
            _with(run.headers),
            echo,
            once,
            b" | ".join(run.payloads),
        )
    if isinstance(command, Subscribe):
        kind = "pattern" if isinstance(command.filter, RegexFilter) else "topic"
        durable = f" as {command.durable}" if command.durable else ""
        return f"subscribe {kind} {_key(command.key)}{durable}".encode()
    if isinstance(command, Unsubscribe):
        return f"unsubscribe {_key(command.key)}".encode()
    if isinstance(command, Identify):
        claim = command.claim
        password = f" with password {claim.password}" if isinstance(claim, Password) else ""
        sole = f" as {command.sole}" if command.sole else ""
        return f"identify {command.name}{sole}{password}".encode()
    if isinstance(command, Consume):
        kind = "" if command.queue.shared else ", everyone"
        at_once = f", {command.prefetch} at a time" if command.prefetch else ""
        return f"consume {_key(command.key)} from {command.queue.name}{kind}{at_once}".encode()
    if isinstance(command, Acknowledge):
        offsets = " ".join(map(str, command.offsets))
        return f"acknowledge {_key(command.key)}: {offsets}".encode()
    if isinstance(command, Advertise):
        return f"advertise {command.topic}".encode()
    assert isinstance(command, Confirm)
    return f"confirm {command.offset}".encode()


def shown(event: Event) -> bytes:
    """An event in words. Why a connection ended is prose, and left out."""
    if isinstance(event, Ready):
        return b"ready"
    if isinstance(event, Answered):
        error = event.error
        return f"refused, {error.code.value}: {error}".encode() if error else b"answered"
    if isinstance(event, Delivered):
        payloads = b" | ".join(event.payloads)
        return b"message %b%b: %b" % (event.topic.encode(), _with(event.headers), payloads)
    if isinstance(event, Pinged):
        return b"ping, answer " + event.answer
    assert isinstance(event, Ended)
    return b"end"


def _key(key: tuple[str, str]) -> str:
    return " ".join(filter(None, key))


def _with(headers: Headers) -> bytes:
    return "".join(f", {key}={value}" for key, value in headers).encode()


# The broker's side


def service_of(
    protocol: str, settings: dict[str, Any], apps: dict[str, KnownApp] | None = None
) -> Service:
    """A protocol as a broker serves it. The `apps` among its settings may be secrets by name; they
    are put into those that the gate knows."""
    settings, apps = dict(settings), {} if apps is None else apps
    secrets = settings.pop("apps", {})
    apps.update({name: KnownApp(protocol, secret) for name, secret in dict(secrets).items()})
    entry = REGISTRY[protocol]
    return entry.serve(entry.settings(**settings), apps)


def false_claim(command: Command, apps: Mapping[str, KnownApp]) -> Refusal | None:
    """Why a client is not the app that it says it is, if so."""
    if isinstance(command, Identify) and isinstance(command.claim, Signature | SharedSecret):
        found = app_that(command.claim, apps)
        return found if isinstance(found, Refusal) else None
    return None


class Conversation:
    """One connection with a broker that agrees to everything, unless a step says otherwise, or
    someone claims to be an app without its secret."""

    def __init__(self, protocol: str, terms: Terms, settings: dict[str, Any]) -> None:
        self._apps: dict[str, KnownApp] = {}
        self.session = service_of(protocol, settings, self._apps).session(terms)
        self.closed = False
        self._answer = bytearray()
        self._commands: list[Command] = []
        self._awaits: tuple[int, ...] = ()
        self._refuse: Refusal | None = None

    def perform(self, step: Step, feed: Feed = Feed.WHOLE, trailing: bytes = b"") -> None:
        self._answer.clear()
        self._commands.clear()
        self._awaits = ()
        self._refuse = step.refuse
        what = step.what
        if isinstance(what, Send):
            for piece in feed.cut(what.data + trailing):
                self.receive(piece)
        elif isinstance(what, Deliver):
            for subscription in what.to:
                self._answer += self.session.encode(what.batch, subscription)
            self._answer += self.session.mark(what.batch.end)
        elif isinstance(what, Offer):
            room = self.session.room(what.batch.run)
            batch = what.batch.part(what.batch.offset, what.batch.offset + room)
            buffers, awaits = self.session.send(batch, what.key, what.again)
            self._answer += b"".join(buffers)
            self._awaits = tuple(awaits)
        elif isinstance(what, Retract):
            self.session.retract(what.key, what.offsets)
        elif isinstance(what, Idle):
            self._react(self.session.idle(what.position))
        else:
            self._answer += self.session.farewell(what.error)
            self.closed = True
        if trailing and not isinstance(what, Send):
            self.receive(trailing)

    def verify(self, step: Step, name: str) -> None:
        expect([step.answer], [self.answer], f"{name}: the answer")
        expect(step.told, map(told, merged_runs(self._commands)), f"{name}: the commands")
        assert self._awaits == step.awaits, f"{name}: to be acknowledged: {self._awaits}"
        assert self.closed == step.closed, f"{name}: the connection is closed: {self.closed}"

    @property
    def answer(self) -> bytes:
        """What the client received in the last step."""
        return bytes(self._answer)

    def receive(self, data: bytes) -> None:
        """As a connection does it: each command is carried out before the next is asked for."""
        for command in self.session.receive(data):
            assert not self.closed, f"a command after the end: {command}"
            self._handle(command)

    def _handle(self, command: Command) -> None:
        if isinstance(command, Respond | Close):
            self._react(command)
            return
        if (error := false_claim(command, self._apps)) is not None:
            self._react(self.session.refuse(command, error))
            return
        if isinstance(command, Identify) and not (command.name or command.sole or command.answer):
            return  # only to know whether the secret is right
        self._commands.append(command)
        if isinstance(command, Confirm | Acknowledge):
            return
        if self._refuse is not None:
            self._react(self.session.refuse(command, self._refuse))
        else:
            self._answer += command.answer

    def _react(self, command: Command | None) -> None:
        assert command is None or isinstance(command, Respond | Close)
        if command is not None:
            self._answer += command.answer
            self.closed = isinstance(command, Close)


def merged_runs(commands: Iterable[Command]) -> Iterator[Command]:
    """Cutting the bytes cuts runs and acknowledgements; put them together again."""
    pending: Publish | Acknowledge | None = None
    for command in commands:
        if isinstance(command, Publish | Acknowledge):
            if pending is not None and _alike(pending, command):
                command = _joined(pending, command)
            elif pending is not None:
                yield pending
            pending = command
            continue
        if pending is not None:
            yield pending
            pending = None
        yield command
    if pending is not None:
        yield pending


def _alike(one: Publish | Acknowledge, other: Publish | Acknowledge) -> bool:
    return _shared(one) == _shared(other)


def _shared(command: Publish | Acknowledge) -> tuple[object, ...]:
    if isinstance(command, Acknowledge):
        return (command.key,)
    run = command.run
    once = bool(command.once)
    return run.topic, run.publisher, run.headers, command.echo, once, command.again


def _joined(one: Publish | Acknowledge, other: Publish | Acknowledge) -> Publish | Acknowledge:
    if isinstance(one, Acknowledge):
        assert isinstance(other, Acknowledge)
        return Acknowledge(one.key, [*one.offsets, *other.offsets])
    assert isinstance(other, Publish)
    run = one.run.like([*one.run.payloads, *other.run.payloads])
    numbers = (*one.once, *other.once)
    return Publish(run, one.answer + other.answer, one.echo, None, numbers, one.again)


def play(vector: Vector, greeting: str, feed: Feed) -> None:
    """Play a vector against the broker's codec and verify each step."""
    conversation = Conversation(vector.protocol, vector.terms, vector.settings)
    expect([greeting], [conversation.session.greet()], "the greeting")
    for step in vector.introduction:
        conversation.perform(step)
    for number, step in enumerate(vector.steps, 1):
        last = feed is Feed.TRAILING and number == len(vector.steps)
        trailing = GARBAGE if step.closed else vector.next
        conversation.perform(step, feed, trailing if last else b"")
        conversation.verify(step, f"{vector.name}, step {number}")
    if conversation.closed:
        assert not list(conversation.session.receive(GARBAGE)), "a command after the end"


# The client's side


def merged_deliveries(events: Iterable[Event]) -> Iterator[Event]:
    pending: Delivered | None = None
    for event in events:
        if isinstance(event, Delivered):
            if pending and (pending.topic, pending.headers) == (event.topic, event.headers):
                event = Delivered(event.topic, [*pending.payloads, *event.payloads], event.headers)
            elif pending:
                yield pending
            pending = event
            continue
        if pending:
            yield pending
            pending = None
        yield event
    if pending:
        yield pending


def play_client(vector: Vector, feed: Feed) -> None:
    """Play a vector against the client's codec and verify each step."""
    session = CLIENTS[vector.protocol]()
    for step in vector.introduction:
        assert isinstance(step.what, Send)
        list(session.receive(step.what.data))
    for number, step in enumerate(vector.steps, 1):
        assert isinstance(step.what, Send)
        ended = "end" in step.told
        trailing = GARBAGE if feed is Feed.TRAILING and ended else b""
        pieces = feed.cut(step.what.data + trailing)
        events = [event for piece in pieces for event in session.receive(piece)]
        name = f"{vector.name}, step {number}"
        expect(step.told, map(shown, merged_deliveries(events)), f"{name}: the events")
        if ended:
            assert not list(session.receive(GARBAGE)), f"{name}: an event after the end"
