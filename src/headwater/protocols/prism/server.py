"""Prism's broker side. The commands and messages are drawn in wire.py.

There are no answers to commands in Prism, so ending the connection with a code and a reason is the
only way to tell a client that one was not taken.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, cast

from mypy_extensions import mypyc_attr

from headwater import topics
from headwater.commands import Acknowledge, Close, Command, Consume, Identify, Publish
from headwater.errors import Code, Refusal
from headwater.message import Batch, Headers, Run
from headwater.protocols.base import Terms
from headwater.protocols.prism import handshake
from headwater.protocols.prism.names import topic_of
from headwater.protocols.prism.settings import DEFAULT_QUEUE
from headwater.protocols.prism.wire import (
    ACK,
    BODY_BYTES,
    COMMAND_BYTES,
    CONSUME,
    CONTENT_TYPE,
    NAME,
    PUBLISH,
    U32,
    decoded,
    deliveries,
    read_publish,
    read_text,
)
from headwater.protocols.websocket.frames import (
    TEXT,
    CloseCode,
    Failed,
    Message,
    TooLarge,
    frames,
)
from headwater.protocols.websocket.handshake import Request
from headwater.protocols.websocket.server import WebSocketSession

if TYPE_CHECKING:
    from headwater.protocols.prism.service import PrismService

Key = tuple[str, str]
#: What a handler found in the messages: how many of them, and what they ask for.
Step = tuple[int, Sequence[Command]]


@mypyc_attr(native_class=False)
class PrismSession(WebSocketSession):
    """The broker's side."""

    #: Deployed clients put commands into text frames, and the sizes in them are not UTF-8.
    check_text = False

    def __init__(self, terms: Terms, service: "PrismService") -> None:
        super().__init__(terms, COMMAND_BYTES)
        self.protocol = NAME
        self._service = service
        self._body_bytes = min(BODY_BYTES, terms.message_bytes)
        self._client = ""
        self._prefetch: int | None = None  # as the client has asked for
        self._next_tag = 1
        self._held: dict[bytes, tuple[Key, int]] = {}  # the offset that a tag stands for
        self._quote = b"" if service.settings.numeric_tags else b'"'
        #: Acknowledgements of messages that are not the client's, or not any more.
        self.unknown_tags = 0

    def admit(self, request: Request) -> Identify:
        claim = handshake.claim(request, self._service.settings.sign_seconds, self._terms)
        self._client = claim.app
        self._prefetch = handshake.wanted_prefetch(request)
        return Identify(self._client, claim)

    def read(self, messages: list[Message | TooLarge]) -> Iterator[Command]:
        commands = [command for _, command in cast(list[Message], messages)]  # none is skipped
        position = 0
        while position < len(commands):
            try:
                handler = _handler(commands[position])
                position, found = handler(self, commands, position)
            except Failed as failed:
                yield self.end(failed.code, str(failed))
                return
            except Refusal as error:
                yield self.end(_close_code(error), str(error))
                return
            yield from found

    def send(self, batch: Batch, key: Key, again: bool) -> tuple[list[bytes], Sequence[int]]:
        first, self._next_tag = self._next_tag, self._next_tag + len(batch.run)
        tags = [b"%d" % number for number in range(first, self._next_tag)]
        offsets = range(batch.offset, batch.end)
        self._held.update(zip(tags, zip(repeat(key), offsets), strict=True))
        seconds = batch.timestamp // 1_000_000
        return [frames(TEXT, deliveries(batch.run, seconds, tags, self._quote))], offsets

    def retract(self, key: Key, offsets: Sequence[int]) -> None:
        gone = set(offsets)
        held = [tag for tag, (of, offset) in self._held.items() if of == key and offset in gone]
        for tag in held:
            del self._held[tag]

    def refuse(self, command: Command, error: Refusal) -> Command | None:
        if isinstance(command, Identify):
            self._closed = True
            return Close(handshake.refused(str(error)).to_bytes(), str(error))
        code = CloseCode.INTERNAL if isinstance(command, Publish) else CloseCode.POLICY
        return self.end(code, str(error))

    def _publish(self, commands: list[bytes], position: int) -> Step:
        """A publish command and those behind it with the same key and content type."""
        first = commands[position]
        body, end = read_publish(first, self._body_bytes)
        key, tail = first[3 : body - 4], first[end:]
        topic = topics.check(topic_of(decoded(key, "key")), self._terms.topic_bytes)
        payloads, position = self._bodies(commands, position, first[: body - 4], tail)
        headers: Headers = ((CONTENT_TYPE, tail[2:].decode()),) if len(tail) > 2 else ()
        run = Run(topic, payloads, protocol=NAME, publisher=self._client, headers=headers)
        return position, (Publish(run),)

    def _bodies(
        self, commands: list[bytes], position: int, prefix: bytes, tail: bytes
    ) -> tuple[list[bytes], int]:
        """The bodies of the commands from `position` on that differ in nothing else.

        Most are of one size. Then all around the body is known, and comparing it is enough.
        """
        start, around = len(prefix) + 4, len(prefix) + 4 + len(tail)
        head, size = b"", -1
        payloads: list[bytes] = []
        while position < len(commands):
            command = commands[position]
            if len(command) != size:
                size = len(command)
                if not around <= size <= around + self._body_bytes:
                    break
                head = prefix + U32.pack(size - around)
            if not command.startswith(head) or not command.endswith(tail):
                break
            payloads.append(command[start : size - len(tail)])
            position += 1
        return payloads, position

    def _consume(self, commands: list[bytes], position: int) -> Step:
        command = commands[position]
        name = read_text(command, 1, "queue's name") if len(command) > 1 else ""
        name = name or DEFAULT_QUEUE
        queue = self._service.queue(self._client, name)
        topics.check(queue.dead_topic, self._terms.topic_bytes)
        return position + 1, (Consume((name, ""), queue, prefetch=self._prefetch),)

    def _acknowledge(self, commands: list[bytes], position: int) -> Step:
        """An acknowledgement and those behind it: one command for each queue."""
        settled: dict[Key, list[int]] = {}
        first = position
        while position < len(commands):
            command = commands[position]
            tag = command[1:]
            if not command.startswith(ACK) or not tag.isdigit():
                break
            position += 1
            held = self._held.pop(tag, None)
            if held is None:
                self.unknown_tags += 1
                self._service.unknown_tags.count += 1
            else:
                settled.setdefault(held[0], []).append(held[1])
        if position == first:
            raise Failed(CloseCode.UNSUPPORTED, "a tag is made of decimal digits")
        return position, [Acknowledge(key, offsets) for key, offsets in settled.items()]


_HANDLERS: dict[bytes, Callable[[PrismSession, list[bytes], int], Step]] = {
    PUBLISH: PrismSession._publish,
    CONSUME: PrismSession._consume,
    ACK: PrismSession._acknowledge,
}


def _handler(command: bytes) -> Callable[[PrismSession, list[bytes], int], Step]:
    handler = _HANDLERS.get(command[:1])
    if handler is not None:
        return handler
    why = f"0x{command[:1].hex()} is not a command" if command else "a command is empty"
    raise Failed(CloseCode.UNSUPPORTED, why)


def _close_code(error: Refusal) -> CloseCode:
    return CloseCode.TOO_BIG if error.code is Code.TOO_LARGE else CloseCode.UNSUPPORTED
