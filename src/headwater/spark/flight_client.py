"""The client of the broker in Spark's processes: over Flight, and patient.

A `FlightClient` is a value: it says how to reach the broker, can be pickled, and goes along to all
processes. Each process opens one connection when it first needs one, and keeps it.

A request that finds no broker is made to the next server; after the last one it is made again, as
often as the options say, with one line in the log each time. Every request can be repeated without
harm: reading goes on behind the last row, and a stage or a commit counts once.
"""

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pyarrow import ArrowException, flight

from headwater import local_tokens
from headwater.errors import Code, ConfigError, Disconnected, Refusal
from headwater.spark.options import ConnectionOptions

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: The time limits of a small request, and of the commit of a batch.
ANSWER_SECONDS = 60.0
COMMIT_SECONDS = 600.0

#: The broker is away, or cannot do it now.
_AWAY = (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError)
# Arrow and gRPC put these around the broker's sentence.
_BEFORE = re.compile(r"^Flight returned [a-z ]+ error, with message: ")
_BEHIND = re.compile(r"(\. Detail: \w+)?\. gRPC client debug context:.*", re.DOTALL)

_CHANNEL = [
    # Otherwise a connection that was refused is not tried again for up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Against its name, this is how long a connection may take to be made. One that is refused is
    # over at once; one over a slow line, or to a broker that is busy, needs more than a moment.
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The offsets that the log has: from `start` to before `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RecordSelection:
    """The topics to read, and whether with headers."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    headers: bool = False

    def ticket(self, start: int, end: int) -> Any:
        request: dict[str, Any] = {"start": start, "end": end, "headers": self.headers}
        if self.topics is not None:
            request["topics"] = list(self.topics)
        if self.pattern is not None:
            request["pattern"] = self.pattern
        return flight.Ticket(json.dumps(request).encode())


@dataclass(frozen=True, slots=True)
class CommitAnswer:
    """A batch that is visible. `repeated`: it was so before."""

    first: int | None
    count: int | None
    repeated: bool


@dataclass(frozen=True, slots=True)
class FlightClient:
    """Makes requests to the broker.

    Raises Disconnected when it gives up, ConfigError if an option is wrong, and Refusal if the
    broker declines."""

    servers: tuple[str, ...]
    token: str | None = field(default=None, repr=False)
    tls: bool = False
    #: The certificate of who signed the broker's (PEM), not where it is: tasks run elsewhere.
    authority: bytes | None = field(default=None, repr=False)
    #: The client's own certificate and its key, in the same way.
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    retries: int = 10
    interval: float = 1.0

    @classmethod
    def of(cls, options: ConnectionOptions) -> "FlightClient":
        servers = tuple(map(str, options.servers))
        return cls(
            servers=servers,
            token=options.token or _local_token(servers),  # tasks may run elsewhere
            tls=options.tls,
            authority=_content("tls.caFile", options.ca_file),
            certificate=_content("tls.certFile", options.certificate_file),
            key=_content("tls.keyFile", options.key_file),
            retries=options.retries,
            interval=options.retry_interval / 1000,
        )

    # Reading

    def log(self) -> LogBounds:
        found = self._act("log")
        return LogBounds(found["start"], found["end"])

    def offset_at(self, milliseconds: int) -> int:
        """The offset of the first message that came at that time or later."""
        offset: int = self._act("offset_at", timestamp=milliseconds * 1000)["offset"]
        return offset

    def split(self, start: int, end: int, size: int) -> list[tuple[int, int, int]]:
        """A range cut into pieces of about `size` bytes: (start, end, bytes)."""
        ranges = self._act("split", start=start, end=end, bytes=size)["ranges"]
        return [(low, high, held) for low, high, held in ranges]

    def read(self, selection: RecordSelection, start: int, end: int) -> Iterator[Any]:
        """The messages of a range as record batches."""
        patience = _Patience(self)
        while True:
            try:
                with _FlightErrors():
                    for chunk in _link(self).client.do_get(
                        selection.ticket(start, end), self._options()
                    ):
                        if len(chunk.data):
                            yield chunk.data
                            start = chunk.data.column("offset")[-1].as_py() + 1
                            patience.renew()
                return
            except _AWAY as error:
                patience.lose(error)

    # Writing

    def stage(
        self, query: str, batch: int, partition: int, attempt: str, rows: Sequence[Any]
    ) -> None:
        """Keep rows aside until their batch is committed. They are on disk when this returns."""
        command = {
            "do": "stage",
            "query": query,
            "batch": batch,
            "partition": partition,
            "attempt": attempt,
        }
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())

        def put(client: Any) -> None:
            writer, answers = client.do_put(descriptor, rows[0].schema, self._options())
            with writer:  # closing it raises what the broker said
                for each in rows:
                    writer.write_batch(each)
                writer.done_writing()
                answers.read()

        self._persist(put)

    def commit(self, query: str, batch: int, parts: Mapping[str, str]) -> CommitAnswer:
        """Make a batch visible, once. `parts`: the attempt that counts of each partition."""
        found = self._act("commit", COMMIT_SECONDS, query=query, batch=batch, parts=dict(parts))
        return CommitAnswer(found["first"], found["count"], found["repeated"])

    def abort(self, query: str, batch: int) -> None:
        self._act("abort", query=query, batch=batch)

    def committed(self, query: str) -> int | None:
        """The last batch of a query that is visible."""
        batch: int | None = self._act("committed", query=query)["batch"]
        return batch

    def report(self, pipeline: str, state: Mapping[str, Any]) -> None:
        """Report the state of a pipeline, for the console."""
        self._act("report", pipeline=pipeline, state=dict(state))

    def close(self) -> None:
        """Let go of this process's connection. The next request opens a new one."""
        _link(self).close()

    def _act(self, name: str, seconds: float = ANSWER_SECONDS, **arguments: Any) -> dict[str, Any]:
        action = flight.Action(name, json.dumps(arguments).encode())

        def ask(client: Any) -> dict[str, Any]:
            (answer,) = client.do_action(action, self._options(seconds))
            content: dict[str, Any] = json.loads(answer.body.to_pybytes())
            return content

        return self._persist(ask)

    def _persist(self, request: Callable[[Any], T]) -> T:
        patience = _Patience(self)
        while True:
            try:
                with _FlightErrors():
                    return request(_link(self).client)
            except _AWAY as error:
                patience.lose(error)

    def _options(self, seconds: float | None = None) -> Any:
        token = self.token or _local_token(self.servers)
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        return flight.FlightCallOptions(headers=headers, timeout=seconds)


def _local_token(servers: Sequence[str]) -> str | None:
    """That of a broker of the same user on this machine; nobody has to be told."""
    return next(filter(None, map(local_tokens.find, servers)), None)


class _FlightErrors:
    """Turns errors of Flight into Headwater's, except that the broker is away."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, flight.FlightUnauthenticatedError):
            raise ConfigError(
                "the broker wants another token: set the option token to one of a user ("
                "'headwater user token NAME' makes one), or to the one in the broker's "
                "configuration, [flight] token"
            ) from None
        if isinstance(error, ArrowException | OSError) and not isinstance(error, _AWAY):
            raise Refusal(Code.NOT_PERMITTED, sentence_of(error)) from None


def sentence_of(error: BaseException) -> str:
    """The sentence of the broker, without the words that Flight adds."""
    return _BEHIND.sub("", _BEFORE.sub("", str(error)))


class _Patience:
    """Counts how often a request found no broker, and says when it is enough."""

    def __init__(self, broker: FlightClient) -> None:
        self._broker = broker
        self.renew()

    def renew(self) -> None:
        """The broker has answered."""
        self._lost = 0

    def lose(self, error: Exception) -> None:
        """Returns when it is time to try again; raises Disconnected if it is not worth it."""
        broker, servers = self._broker, ", ".join(self._broker.servers)
        why = sentence_of(error)
        _link(broker).move_on()
        self._lost += 1
        if self._lost % len(broker.servers):
            return  # the next server may do
        rounds = self._lost // len(broker.servers)
        if rounds > broker.retries:
            raise Disconnected(
                f"no broker answers at {servers} ({why}); asked {rounds} times. Is it running, and "
                "does the option servers name its Flight listener?"
            ) from None
        logger.warning(
            "no broker answers at %s (%s); trying again in %g s (%d of %d)",
            servers,
            why,
            broker.interval,
            rounds,
            broker.retries,
        )
        time.sleep(broker.interval)


def _content(option: str, file: Path | None) -> bytes | None:
    try:
        return None if file is None else file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the option {option} must name a file that can be read, and "
            f"{file} cannot: {error.strerror}"
        ) from None


class _ServerLink:
    """The connection of this process to one of a broker's servers."""

    def __init__(self, broker: FlightClient) -> None:
        self._broker = broker
        self._server = 0
        self._client: Any = None

    @property
    def client(self) -> Any:
        if self._client is None:
            broker = self._broker
            scheme = "grpc+tls" if broker.tls else "grpc"
            self._client = flight.FlightClient(
                f"{scheme}://{broker.servers[self._server]}",
                tls_root_certs=broker.authority,
                cert_chain=broker.certificate,
                private_key=broker.key,
                generic_options=_CHANNEL,
            )
        return self._client

    def move_on(self) -> None:
        """To the next server."""
        self.close()
        self._server = (self._server + 1) % len(self._broker.servers)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


#: For the whole process on purpose: copies of one client share a connection. By process id, because
#: a forked process cannot use the connections of its parent.
_links: dict[tuple[int, FlightClient], _ServerLink] = {}


def _link(broker: FlightClient) -> _ServerLink:
    key = os.getpid(), broker
    if key not in _links:
        _links[key] = _ServerLink(broker)
    return _links[key]
