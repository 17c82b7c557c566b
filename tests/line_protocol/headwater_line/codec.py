"""The two sides of a connection, and what all connections share."""

from collections.abc import Iterator, Sequence

from headwater import topics
from headwater.commands import Close, Command, Publish, Respond, Subscribe, Subscription
from headwater.errors import Code, HeadwaterError, Refusal
from headwater.filters import LevelFilter
from headwater.message import Batch, Run
from headwater.protocols.base import (
    Answered,
    ClientSession,
    Delivered,
    Event,
    Service,
    ServiceCounter,
    Session,
    Terms,
)

from . import LineSettings

OK = b"OK\n"


class LineService(Service):
    def __init__(self, settings: LineSettings, apps: object = None) -> None:
        self.longest_line = settings.longest_line
        self.unknown_words = ServiceCounter("line_unknown_words", "Lines that made no sense.")

    def session(self, terms: Terms) -> "LineSession":
        return LineSession(terms, self)

    def counters(self) -> Sequence[ServiceCounter]:
        return (self.unknown_words,)


class LineSession(Session):
    protocol = "line"

    def __init__(self, terms: Terms, service: LineService) -> None:
        self._terms = terms
        self._service = service
        self._rest = b""

    def receive(self, data: bytes) -> Iterator[Command]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.established = True
            try:
                yield self._command(line)
            except Refusal as error:
                yield Respond(_error(error))
        if len(self._rest) > self._service.longest_line:
            yield Close(b"ERR the line has no end\n", "a line has no end")

    def _command(self, line: bytes) -> Command:
        word, _, rest = line.partition(b" ")
        name, _, payload = rest.partition(b" ")
        if word not in (b"PUB", b"SUB"):
            self._service.unknown_words.count += 1
            raise Refusal(Code.UNKNOWN_COMMAND, f"{word!r} is neither PUB nor SUB")
        topic = topics.check(name.decode(errors="replace"), self._terms.topic_bytes)
        if word == b"SUB":
            return Subscribe((topic, ""), LevelFilter.parse(topic), OK)
        run = Run(topic, [payload], protocol=self.protocol, publisher=self._terms.peer)
        return Publish(run, OK)

    def encode(self, batch: Batch, subscription: Subscription) -> bytes:
        head = f"MSG {batch.run.topic} ".encode()
        return b"".join([head + payload + b"\n" for payload in batch.run.payloads])

    def refuse(self, command: Command, error: Refusal) -> Command | None:
        return Respond(_error(error))

    def farewell(self, error: HeadwaterError) -> bytes:
        return _error(error)


def _error(error: HeadwaterError) -> bytes:
    return f"ERR {error}\n".encode()


class LineClientSession(ClientSession):
    def __init__(self) -> None:
        self._rest = b""

    def receive(self, data: bytes) -> Iterator[Event]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            word, _, rest = line.partition(b" ")
            if word == b"MSG":
                topic, _, payload = rest.partition(b" ")
                yield Delivered(topic.decode(), [payload])
            else:
                refusal = Refusal(Code.NOT_PERMITTED, rest.decode())
                yield Answered(None if word == b"OK" else refusal)
