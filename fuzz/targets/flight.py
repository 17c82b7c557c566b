"""Arrow Flight: requests, and rows as Arrow writes them, for the server's own methods.

An input is a line with what is wanted (an action, "get" or "put"), then the request in JSON; for a
put another line follows, and all behind it is a stream of record batches. Now and then an input
goes through gRPC as well, as far as a client lets it.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from fuzz import branches
from fuzz.stand import Stand
from fuzz.targets.base import Target, Violation
from fuzz.targets.control import JSON_WORDS
from headwater import local_tokens
from headwater.errors import HeadwaterError
from headwater.flight import requests
from headwater.flight.calls import NAME as CALLS
from headwater.flight.calls import Call as FlightCall
from headwater.flight.calls import Calls
from headwater.flight.entrance import NAME as TOKEN
from headwater.flight.entrance import Caller, Token
from headwater.rights import everything

#: So many inputs later, one goes over gRPC too.
OVER_GRPC = 100
#: Rows that are in the log for readers.
ROWS = 2_000
REQUESTS: dict[str, dict[str, object]] = {
    "get": {"start": 0, "end": 10, "pattern": "a/.*", "headers": True},
    "put": {"do": "append", "producer": "p", "sequence": 7},
    "log": {},
    "offset_at": {"timestamp": 1700000000000000},
    "topics": {"pattern": "a/.*", "after": "a", "limit": 5},
    "split": {"start": 0, "end": 1000, "bytes": 10000},
    "commit": {"query": "q", "batch": 0, "parts": {"0": "x"}},
    "abort": {"query": "q", "batch": 0},
    "committed": {"query": "q"},
    "report": {"pipeline": "p", "state": {"a": 1}},
}


class CallContext:
    """What gRPC tells the server of a call."""

    def __init__(self, calls: Calls, token: str) -> None:
        self._middleware = {CALLS: FlightCall(calls, False), TOKEN: Token(token)}

    def get_middleware(self, name: str) -> Any:
        return self._middleware[name]

    def peer(self) -> str:
        return "ipv4:192.0.2.1:5000"

    def peer_identity(self) -> bytes:
        return b""

    def is_cancelled(self) -> bool:
        return False


class FlightTarget(Target):
    name = "flight"
    has_json = True
    clock = staticmethod(time.process_time)  # the service has threads of its own

    def __init__(self) -> None:
        self._stand: Stand | None = None
        self._server: Any = None
        self._client: Any = None
        # Flight calls the service in threads of its own: in the loop's it would wait for itself.
        self._thread = ThreadPoolExecutor(1)
        self._count = 0
        self._token = ""

    def seeds(self) -> list[bytes]:
        found = [
            name.encode() + b"\n" + json.dumps(request).encode()
            for name, request in REQUESTS.items()
            if name != "put"
        ]
        found += [_get(topics=["a/1", "a/2"]), _get(), _get(start=5, end=5), _get(pattern="(")]
        stage = {"do": "stage", "query": "q", "batch": 0, "partition": 0, "attempt": "x"}
        for command in (REQUESTS["put"], stage):
            for rows in _tables():
                found.append(b"put\n" + json.dumps(command).encode() + b"\n" + _stream(rows))
        return found

    def words(self) -> list[bytes]:
        return [*branches.words("headwater.flight"), *JSON_WORDS, b"\xff\xff\xff\xff", b"\0" * 8]

    async def open(self, directory: Path) -> None:
        self._stand = await Stand.start(
            directory, lambda session: session, listen__flight="127.0.0.1:0"
        )
        service = self._stand.server.flight
        assert service is not None
        self._server = vars(service)["_server"]
        self._client = flight.connect(f"grpc://127.0.0.1:{self._server.port}")
        self._token = local_tokens.kept_in(directory)
        rows = pa.table(
            {
                "topic": [f"a/{number % 50}" for number in range(ROWS)],
                "value": [b"%d" % number * 20 for number in range(ROWS)],
            }
        )
        command = json.dumps({"do": "append", "producer": "first", "sequence": 1}).encode()
        await self._in_thread(self._call, b"put\n" + command + b"\n" + _stream(rows))

    async def close(self) -> None:
        assert self._stand is not None
        self._client.close()
        await self._stand.stop()

    async def run(self, data: bytes) -> None:
        self._count += 1
        await self._in_thread(self._call, data)
        if self._count % OVER_GRPC == 0:
            await self._in_thread(self._call_over_grpc, data)

    async def _in_thread(self, work: Any, data: bytes) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work, data)

    def _call(self, data: bytes) -> None:
        call = Call.read(data)
        try:
            self._perform(call)
            branches.outcome("flight", call.kind in REQUESTS and call.kind, "done")
        except flight.FlightError as error:
            check_error(error)
            branches.outcome("flight", call.kind in REQUESTS and call.kind, type(error).__name__)

    def _perform(self, call: "Call") -> None:
        server = self._server
        if call.kind == "get":
            server.do_get(self._context(), flight.Ticket(call.request))
            self._read(call.request)
        elif call.kind == "put":
            descriptor = flight.FlightDescriptor.for_command(call.request)
            server.do_put(self._context(), descriptor, call.chunks(), Answers())
        else:
            for result in server.do_action(self._context(), flight.Action(call.kind, call.request)):
                json.loads(result.body.to_pybytes())

    def _context(self) -> "CallContext":
        assert self._stand is not None and self._stand.server.flight is not None
        return CallContext(self._stand.server.flight.calls, self._token)

    def _read(self, request: bytes) -> None:
        """What Flight would send: it takes the rows out of its stream in C++."""
        assert self._stand is not None and self._stand.server.flight is not None
        wanted = requests.parse(requests.Read, request)
        reader = self._stand.server.flight.reader
        caller = Caller(everything(), "192.0.2.1:5000", lambda: False)
        schema, batches = reader.read(wanted, caller)
        try:
            for batch in batches:
                batch.validate(full=True)
                if batch.schema != schema:
                    raise Violation("a batch has another schema than its stream")
        except HeadwaterError:
            pass  # it is told as the others are, behind the rows that came before

    def _call_over_grpc(self, data: bytes) -> None:
        call, client = Call.read(data), self._client
        token = f"Bearer {self._token}".encode()
        options = flight.FlightCallOptions(timeout=20, headers=[(b"authorization", token)])
        try:
            if call.kind == "get":
                client.do_get(flight.Ticket(call.request), options).read_all()
            elif call.kind == "put":
                self._put_over_grpc(call, options)
            else:
                list(client.do_action(flight.Action(call.kind, call.request), options))
        except flight.FlightError as error:
            check_error(error)
        except (pa.ArrowException, OSError, ValueError):
            pass  # of the client: it does not send everything

    def _put_over_grpc(self, call: "Call", options: Any) -> None:
        descriptor = flight.FlightDescriptor.for_command(call.request)
        reader = pa.ipc.open_stream(call.rows)
        writer, answers = self._client.do_put(descriptor, reader.schema, options)
        with writer:
            for batch in reader:
                batch.validate(full=True)  # the client's Arrow ends the process for what is damaged
                writer.write_batch(batch)
            writer.done_writing()
            answers.read()


@dataclass(frozen=True, slots=True)
class Call:
    kind: str
    request: bytes
    rows: bytes = b""

    @classmethod
    def read(cls, data: bytes) -> "Call":
        first, _, rest = data.partition(b"\n")
        kind = first.decode(errors="replace").replace("\0", "")
        request, _, rows = rest.partition(b"\n") if kind == "put" else (rest, b"", b"")
        return cls(kind, request, rows)

    def chunks(self) -> Iterator[flight.FlightStreamChunk]:
        """As Flight's reader gives them."""
        for batch in pa.ipc.open_stream(self.rows):
            yield Chunk(batch)


@dataclass(frozen=True, slots=True)
class Chunk:
    data: Any
    app_metadata: Any = None


class Answers:
    """Flight's writer of metadata."""

    def write(self, buffer: Any) -> None:
        json.loads(buffer.to_pybytes())


def check_error(error: Exception) -> None:
    """What a client is told is a sentence, and nothing of the broker's insides."""
    text = str(error)
    for inside in ("Traceback", 'File "', "site-packages", "Python exception"):
        if inside in text:
            raise Violation(f"a client is told {text[:1000]}")


def _get(**request: object) -> bytes:
    return b"get\n" + json.dumps({"start": 0, "end": 100, **request}).encode()


def _tables() -> Iterator[Any]:
    yield pa.table({"topic": ["a/1", "a/1", "b"], "value": [b"x", b"y", b""]})
    headers = pa.array([[("k", "v")], None], requests.HEADERS)
    yield pa.table({"topic": ["a", "b"], "value": [b"x", b"y"], "headers": headers})
    yield pa.table({"topic": pa.array(["a"]).dictionary_encode(), "value": ["text"]})
    yield pa.table({"topic": ["a/+"], "value": [None]})
    yield pa.table({"value": [1], "other": [2.5]})


def _stream(rows: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content
