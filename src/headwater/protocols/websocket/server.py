"""The broker's side of a WebSocket connection: what the codecs that use it have in common."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace

from headwater.commands import Close, Command, Identify, Respond
from headwater.errors import Code, HeadwaterError
from headwater.protocols.base import Session, Terms
from headwater.protocols.websocket.frames import (
    CLOSE,
    PING,
    PONG,
    CloseCode,
    FrameReader,
    Message,
    TooLarge,
    close_frame,
    frame,
)
from headwater.protocols.websocket.handshake import (
    HttpRefusal,
    Request,
    check_upgrade,
    read_request,
    switching,
)

_CLOSE_CODE_OF = {
    Code.MALFORMED: CloseCode.INVALID_DATA,
    Code.UNKNOWN_COMMAND: CloseCode.UNSUPPORTED,
    Code.NOT_PERMITTED: CloseCode.POLICY,
    Code.NOT_FOUND: CloseCode.POLICY,
    Code.ALREADY_EXISTS: CloseCode.POLICY,
    Code.TOO_LARGE: CloseCode.TOO_BIG,
    Code.UNAVAILABLE: CloseCode.GOING_AWAY,
}
_STATUS_OF = {
    Code.MALFORMED: 400,
    Code.UNKNOWN_COMMAND: 400,
    Code.NOT_PERMITTED: 403,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.TOO_LARGE: 413,
    Code.UNAVAILABLE: 503,
    Code.NO_SPACE: 503,
}


# A name that is longer is cut.
MOST_USER_AGENT = 256


class WebSocketSession(Session):
    """The opening handshake, then messages; pings and the end are dealt with here.

    A codec says with `admit` whom it lets in, and with `read` what messages mean.
    """

    #: A message that is too large is shown to `read` as TooLarge instead of ending everything.
    skip_oversized = False
    #: A text message that is not UTF-8 ends everything. Who does not read text need not care.
    check_text = True

    def __init__(self, terms: Terms, message_bytes: int | None = None) -> None:
        self._terms = terms
        limit = terms.message_bytes if message_bytes is None else message_bytes
        self._reader = FrameReader(
            limit, masked=True, skip_oversized=self.skip_oversized, check_text=self.check_text
        )
        self._request = b""  # what has arrived of it
        self._open = False
        self._closed = False

    def admit(self, request: Request) -> Identify | None:
        """Check the request (HttpRefusal: go away), and say who it is from, if it tells."""
        return None

    @abstractmethod
    def read(self, messages: list[Message | TooLarge]) -> Iterator[Command]:
        """Data messages that arrived together, in order."""

    @property
    def unfinished(self) -> int:
        return self._reader.unfinished

    def receive(self, data: bytes) -> Iterator[Command]:
        if self._closed:
            return
        if not self._open:
            self._request += data
            try:
                found = read_request(self._request)
                if found is None:
                    return
                request, size = found
                check_upgrade(request)
                self.user_agent = request.header("User-Agent")[:MOST_USER_AGENT]
                who = self.admit(request)
            except HttpRefusal as refusal:
                self._closed, self._request = True, b""
                yield Close(refusal.to_bytes(), str(refusal))
                return
            data, self._request = self._request[size:], b""
            if who is None:
                yield Respond(switching(request))
            else:
                yield replace(who, answer=switching(request))
                if self._closed:
                    return
            self._open = self.established = True
        if data and not self._closed:
            yield from self._while_open(self._frames(data))

    def probe(self) -> bytes:
        return frame(PING) if self._open and not self._closed else b""

    def end(self, code: CloseCode, reason: str) -> Close:
        self._closed = True
        return Close(close_frame(code, reason), reason)

    def farewell(self, error: HeadwaterError) -> bytes:
        self._closed = True
        code = getattr(error, "code", Code.INTERNAL)
        if self._open:
            return close_frame(_CLOSE_CODE_OF.get(code, CloseCode.INTERNAL), str(error))
        word = code.value.replace(" ", "_")
        return HttpRefusal(_STATUS_OF.get(code, 500), word, str(error)).to_bytes()

    def _while_open(self, commands: Iterator[Command]) -> Iterator[Command]:
        """Carrying out a command may end the connection; then the others are void."""
        for command in commands:
            yield command
            if self._closed:
                return

    def _frames(self, data: bytes) -> Iterator[Command]:
        messages = self._reader.receive(data)
        failed = self._reader.failed
        start = 0
        for index in self._reader.controls:
            if start < index:
                yield from self.read(messages[start:index])
            yield from self._control(messages[index])
            start = index + 1
        if start < len(messages):
            yield from self.read(messages[start:] if start else messages)
        if failed is not None:
            yield self.end(failed.code, str(failed))

    def _control(self, message: Message | TooLarge) -> Iterator[Command]:
        assert not isinstance(message, TooLarge)
        opcode, payload = message
        if opcode == PING:
            yield Respond(frame(PONG, payload))
        elif opcode == CLOSE:
            self._closed = True
            yield Close(frame(CLOSE, payload), "the client closed the connection")
