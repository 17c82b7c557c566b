"""CrystalConnector's client side: the bytes of requests, and what a broker sends as events."""

from collections.abc import Iterator, Mapping, Sequence

from google.protobuf.message import DecodeError

from headwater.errors import Code, Refusal
from headwater.protocols.base import Answered, Delivered, Ended, Event
from headwater.protocols.crystal import crystal_pb2 as pb
from headwater.protocols.crystal.names import channel_of, topic_of
from headwater.protocols.crystal.wire import (
    SECOND,
    SUCCESSFUL,
    THIRD,
    before_payload,
    forward_start,
    is_result,
    is_text,
    payload_at,
    publish_start,
)
from headwater.protocols.websocket.client import WebSocketClient
from headwater.protocols.websocket.frames import BINARY, Message

_REFUSALS = {
    pb.UNKNOWN: (Code.MALFORMED, "the broker does not understand this"),
    pb.AUTHENTICATED: (Code.ALREADY_EXISTS, "this connection is authenticated already"),
    pb.NAME_EXISTS: (Code.ALREADY_EXISTS, "another connection has this client id"),
    pb.UNAUTHENTICATED: (Code.NOT_PERMITTED, "wrong or missing secret"),
    pb.UNREGISTERED_CHANNEL: (Code.NOT_PERMITTED, "the channel is not registered for publishing"),
    pb.INTERNAL: (Code.INTERNAL, "the broker could not do it"),
}


class CrystalClientSession(WebSocketClient):
    """The client's side. Each message of ours is answered by a Result, in order."""

    def authenticate(
        self,
        client_id: tuple[str, str],
        client_name: str,
        secret_key: str,
        directions: Mapping[str, int],
    ) -> bytes:
        """Say who we are, and what we want of which topics."""
        request = pb.Authenticate(client_name=client_name, secret_key=secret_key)
        request.client_id.namespace, request.client_id.name = client_id
        for topic, direction in directions.items():
            namespace, name = channel_of(topic)
            request.channels.add(
                id=pb.NamespacedName(namespace=namespace, name=name),
                direction=direction,
            )
        return self.messages(BINARY, [request.SerializeToString()])

    def publish(self, topic: str, payloads: Sequence[bytes]) -> bytes:
        start = publish_start(channel_of(topic))
        if not all(map(is_text, payloads)):
            raise Refusal(Code.MALFORMED, "CrystalConnector carries text, and this is not UTF-8")
        heads = {size: before_payload(start, SECOND, size) for size in {*map(len, payloads)}}
        return self.messages(BINARY, [heads[len(each)] + each for each in payloads])

    def read(self, messages: list[Message]) -> Iterator[Event]:
        index = 0
        while index < len(messages):
            opcode, data = messages[index]
            try:
                if opcode != BINARY:
                    raise DecodeError("text")
                if is_result(data):
                    yield _answered(data)
                    index += 1
                    continue
                forward = pb.Forward.FromString(data)
            except DecodeError:
                yield Ended("what the broker sent makes no sense")
                return
            payloads = _alike(forward, messages, index)
            index += len(payloads)
            topic = topic_of(forward.channel.namespace, forward.channel.name)
            yield Delivered(topic, payloads, (("publisher", forward.publisher),))


def _answered(data: bytes) -> Answered:
    if data == SUCCESSFUL:
        return Answered()
    result = pb.Result.FromString(data)
    if not result.HasField("error"):
        return Answered(Refusal(Code.INTERNAL, "the broker does not say what came of it"))
    unheard_of = (Code.INTERNAL, f"the broker says error {result.error}")
    return Answered(Refusal(*_REFUSALS.get(result.error, unheard_of)))


def _alike(forward: pb.Forward, messages: list[Message], first: int) -> list[bytes]:
    """The payloads of this Forward, and of those behind it that differ in the payload only."""
    payloads = [forward.payload.encode()]
    channel = forward.channel.namespace, forward.channel.name
    start = forward_start(forward.publisher, channel) + bytes((THIRD,))
    head, size = b"", -1
    for index in range(first + 1, len(messages)):
        opcode, data = messages[index]
        if len(data) != size or not data.startswith(head):
            body = payload_at(data, len(start)) if data.startswith(start) else 0
            if not body:
                break
            head, size = data[:body], len(data)
        payload = data[len(head) :]
        if opcode != BINARY or not is_text(payload):
            break
        payloads.append(payload)
    return payloads
