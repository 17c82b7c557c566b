"""CrystalConnector's broker side. The bytes of its messages are drawn in wire.py.

A client authenticates once and says with which channels it deals, and in which direction; then it
publishes, and hears what others publish. Each of its messages is answered by a Result. The broker
does not end a connection for what is in a message: what makes no sense is answered by UNKNOWN.
"""

from collections.abc import Iterable, Iterator, Sequence

from google.protobuf.message import DecodeError
from mypy_extensions import mypyc_attr

from headwater import topics
from headwater.commands import (
    Command,
    Identify,
    Publish,
    Respond,
    SharedSecret,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from headwater.errors import Code, Refusal
from headwater.filters import LevelFilter
from headwater.message import Batch, Run
from headwater.protocols.base import Terms
from headwater.protocols.crystal import crystal_pb2 as pb
from headwater.protocols.crystal.names import NAME, topic_of
from headwater.protocols.crystal.service import CrystalService
from headwater.protocols.crystal.wire import (
    SUCCESSFUL,
    Channel,
    failure,
    forwards,
    is_text,
    split_publish,
)
from headwater.protocols.websocket.frames import BINARY, Message, TooLarge, frame
from headwater.protocols.websocket.server import WebSocketSession

# A client that nobody knows yet cannot make the broker gather a larger message.
AUTHENTICATE_BYTES = 1024 * 1024
# The beginnings of messages are understood once; so many are remembered.
_REMEMBERED_STARTS = 1024

_SUCCESSFUL = frame(BINARY, SUCCESSFUL)
_DIRECTIONS = frozenset(pb.MessageDirection.values())
_FAILURES = {error: frame(BINARY, failure(error)) for error in pb.Error.values()}


class _Failure(Exception):
    """A request that is answered by an error."""

    def __init__(self, error: pb.Error) -> None:
        super().__init__(pb.Error.Name(error))
        self.error = error


@mypyc_attr(native_class=False)
class CrystalSession(WebSocketSession):
    """The broker's side."""

    skip_oversized = True
    check_text = False  # text is not read here at all

    def __init__(self, terms: Terms, service: CrystalService) -> None:
        super().__init__(terms, min(terms.message_bytes, AUTHENTICATE_BYTES))
        self.protocol = NAME
        self._service = service
        self._authenticated = False
        self._refused = False  # the last command
        self._client_name = ""
        self._outgoing: dict[Channel, str] = {}  # the topics of channels it may publish to
        # The same by the bytes that a Publish begins with; None: it may not.
        self._starts: dict[bytes, str | None] = {}

    def read(self, messages: list[Message | TooLarge]) -> Iterator[Command]:
        index = 0
        while index < len(messages):
            if self._authenticated:
                topic, payloads = self._publications(messages, index)
                if payloads:
                    yield self._publish(topic, payloads)
                    index += len(payloads)
                    continue
            yield from self._read_one(messages[index])
            index += 1

    def encode(self, batch: Batch, subscription: Subscription) -> bytes:
        run, variant = batch.run, (NAME, subscription.key)
        found = run.recall(variant)
        if found is None:
            built = forwards(run.publisher, subscription.key, run.payloads)
            found = run.remember(variant, built)
        return found

    def refuse(self, command: Command, error: Refusal) -> Command | None:
        self._refused = True
        if isinstance(command, Identify) and error.code is Code.ALREADY_EXISTS:
            return Respond(_FAILURES[pb.NAME_EXISTS])
        if isinstance(command, Unsubscribe):
            return None  # nobody asked for it
        count = len(command.run) if isinstance(command, Publish) else 1
        failed = pb.INTERNAL
        if error.code is Code.NOT_PERMITTED:
            is_publish = isinstance(command, Publish)
            failed = pb.UNREGISTERED_CHANNEL if is_publish else pb.UNAUTHENTICATED
        return Respond(_FAILURES[failed] * count)

    def _publications(
        self, messages: list[Message | TooLarge], first: int
    ) -> tuple[str | None, list[bytes]]:
        """From the first one on, the payloads of as many messages as publish to its channel, and
        the topic if it may be published to. No payloads: the first one needs a closer look."""
        topic: str | None = None
        payloads: list[bytes] = []
        start, head, size = b"", b"", -1
        for index in range(first, len(messages)):
            message = messages[index]
            if isinstance(message, TooLarge):
                break
            opcode, data = message
            if len(data) != size or not data.startswith(head):
                found = split_publish(data)
                if found is None:
                    break
                if found[0] != start:
                    if payloads or not self._knows(found[0]):
                        break
                    start = found[0]
                    topic = self._starts[start]
                head, size = data[: found[1]], len(data)
            payload = data[len(head) :]
            if opcode != BINARY or not (payload.isascii() or is_text(payload)):
                break
            payloads.append(payload)
        return topic, payloads

    def _knows(self, start: bytes) -> bool:
        """Whether the channel in the first bytes of a Publish makes sense; then it is remembered
        what may be done with it."""
        if start not in self._starts:
            try:
                found = pb.NamespacedName.FromString(start[2:-1])
            except DecodeError:
                return False
            if len(self._starts) >= _REMEMBERED_STARTS:
                self._starts.clear()
            self._starts[start] = self._outgoing.get((found.namespace, found.name))
        return True

    def _publish(self, topic: str | None, payloads: Sequence[bytes]) -> Command:
        if topic is None:
            return Respond(_FAILURES[pb.UNREGISTERED_CHANNEL] * len(payloads))
        run = Run(topic, payloads, protocol=NAME, publisher=self._client_name)
        return Publish(run, _SUCCESSFUL * len(payloads))

    def _read_one(self, message: Message | TooLarge) -> Iterator[Command]:
        """A message of any shape."""
        try:
            if isinstance(message, TooLarge):
                strangers = self._terms.message_bytes > AUTHENTICATE_BYTES
                limit = "" if strangers and not self._authenticated else "message_bytes"
                raise Refusal(Code.TOO_LARGE, "the message is too large", limit=limit)
            if message[0] != BINARY:
                raise _Failure(pb.UNKNOWN)
            yield from self._commands(message[1])
        except (DecodeError, Refusal):
            yield Respond(_FAILURES[pb.UNKNOWN])
        except _Failure as failed:
            yield Respond(_FAILURES[failed.error])

    def _commands(self, data: bytes) -> Iterator[Command]:
        received = pb.Received.FromString(data)
        if received.HasField("secret_key") or received.HasField("channels"):
            yield from self._authenticate(data)
        elif not self._authenticated:
            raise _Failure(pb.UNAUTHENTICATED)
        else:
            channel = received.channel.namespace, received.channel.name
            yield self._publish(self._outgoing.get(channel), [received.payload.encode()])

    def _authenticate(self, data: bytes) -> Iterator[Command]:
        if self._authenticated:
            raise _Failure(pb.AUTHENTICATED)
        request = pb.Authenticate.FromString(data)
        client = request.client_id.namespace, request.client_id.name
        try:
            directions = self._check(client, request)
        except _Failure:
            # Who does not know the secret learns nothing else.
            self._refused = False
            yield Identify("", SharedSecret(NAME, request.secret_key.encode()))
            if self._refused:
                return
            raise
        yield from self._register(request, client, directions)
        if not self._refused:
            self._authenticated = True
            self._reader.allow(self._terms.message_bytes)
            self._client_name = request.client_name
            self._outgoing = {
                channel: topic_of(*channel)
                for channel, direction in directions.items()
                if direction & pb.OUTGOING
            }
            self._service.note((*client, *(part for channel in directions for part in channel)))

    def _register(
        self, request: pb.Authenticate, client: Channel, directions: dict[Channel, int]
    ) -> Iterator[Command]:
        """Take the client's name and its subscriptions: all of them, or none."""
        self._refused = False
        incoming = [each for each, direction in directions.items() if direction & pb.INCOMING]
        sole = f"{NAME}/{topic_of(*client)}"
        claim = SharedSecret(NAME, request.secret_key.encode())
        answer = b"" if incoming else _SUCCESSFUL
        yield Identify(request.client_name, claim, answer, sole=sole)
        for number, channel in enumerate(incoming):
            if self._refused:
                return
            answer = _SUCCESSFUL if number == len(incoming) - 1 else b""
            yield Subscribe(channel, LevelFilter.exact(topic_of(*channel)), answer)
            if self._refused:
                for taken in incoming[:number]:
                    yield Unsubscribe(taken)

    def _check(self, client: Channel, request: pb.Authenticate) -> dict[Channel, int]:
        try:
            for name in (topic_of(*client), request.client_name):
                topics.check_size(name, self._terms.topic_bytes, "a client's name")
            return self._directions(request.channels)
        except Refusal:
            raise _Failure(pb.UNKNOWN) from None

    def _directions(self, channels: Iterable[pb.Channel]) -> dict[Channel, int]:
        """What the client wants of each channel. Who names one twice means both."""
        directions: dict[Channel, int] = {}
        for each in channels:
            channel = each.id.namespace, each.id.name
            if each.direction not in _DIRECTIONS:
                raise _Failure(pb.UNKNOWN)
            topics.check(topic_of(*channel), self._terms.topic_bytes)
            directions[channel] = directions.get(channel, 0) | each.direction
        return directions
