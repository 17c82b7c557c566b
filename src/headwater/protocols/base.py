"""The shape of a session: what the broker and a protocol know of each other.

A session is one side of one connection as a pure state machine: bytes in, commands out; answers in,
bytes out. It never waits, never asks the clock and never touches a socket.

    receive(data)      bytes from the client → commands, one after the other. The caller carries
                       each out before it asks for the next, so a refusal can change the state.
    encode(batch, …)   a batch for one of the client's subscriptions → bytes to send
    mark(position)     behind a batch → bytes that the client answers, where the protocol can
    room(run)          how many messages of a queue the client's window has room for
    send(batch, …)     a batch of a queue → buffers to send, and what the client will acknowledge
    refuse(command, …) the broker declined a command → what to do about it
    idle(position)     nothing happened for a while → a sign of life, or the end
    probe()            another client claims its place → what a living one answers
    farewell(error)    the broker ends the connection → last words
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from headwater.commands import Command, Subscription
from headwater.errors import HeadwaterError, Refusal
from headwater.message import Batch, Headers, Run
from headwater.queue_spec import QueueSpec


@dataclass(frozen=True, slots=True)
class Terms:
    """What a session has to know of its surroundings: who the peer is, and the bounds."""

    peer: str
    message_bytes: int = 16 * 1024 * 1024
    topic_bytes: int = 1024
    #: When the connection was made, in seconds since 1970.
    now: float = 0.0
    #: It is inside TLS.
    secure: bool = False
    #: The user that its certificate names, if it has shown one.
    user: str = ""
    #: It need not say who it is: the listener is for everyone, or the certificate has told.
    known: bool = True

    @property
    def publisher(self) -> str:
        """What it is called as the publisher of messages, if it says nothing else."""
        return self.user or self.peer


class Session(ABC):
    """The broker's side of one connection."""

    #: What it speaks; empty while that is not known.
    protocol: str = ""
    #: What the client's software calls itself, where the protocol tells.
    user_agent: str = ""
    #: The client has said what it came for; until then the handshake's time limit runs.
    established: bool = False
    #: After so many seconds without a sign of life, `idle` is asked. None: never.
    idle_after: float | None = None
    #: Behind messages, after so many seconds of quiet, `mark` is asked. None: never.
    mark_after: float | None = None
    #: What the broker sends is a sign of life too.
    sending_is_life: bool = False
    #: A client that says nothing for so many seconds after it came is `silent`. None: never.
    silent_after: float | None = None
    #: The session that goes on in place of this one, and the bytes that are its to read.
    successor: "tuple[Session, bytes] | None" = None

    @property
    def unfinished(self) -> int:
        """How many bytes a message that has begun to arrive will take, as far as is known."""
        return 0

    def greet(self) -> bytes:
        """What the broker says first."""
        return b""

    def silent(self) -> None:  # noqa: B027
        """The client may be waiting for the broker to speak: a successor may do that."""

    @abstractmethod
    def receive(self, data: bytes) -> Iterator[Command]: ...

    def encode(self, batch: Batch, subscription: Subscription) -> bytes:
        raise NotImplementedError("this protocol has no subscriptions")

    def mark(self, position: int) -> bytes:
        return b""

    def room(self, run: Run) -> int:
        return sys.maxsize

    def send(
        self, batch: Batch, key: tuple[str, str], again: bool
    ) -> tuple[list[bytes], Sequence[int]]:
        raise NotImplementedError("this protocol has no queues")

    def retract(self, key: tuple[str, str], offsets: Sequence[int]) -> None:  # noqa: B027
        """These messages of a queue are no longer the client's to acknowledge."""

    @abstractmethod
    def refuse(self, command: Command, error: Refusal) -> Command | None: ...

    def idle(self, position: int) -> Command | None:
        return None

    def probe(self) -> bytes:
        """What every living client answers at once. Empty: the protocol has nothing like that."""
        return b""

    @abstractmethod
    def farewell(self, error: HeadwaterError) -> bytes: ...


@dataclass(slots=True)
class ServiceCounter:
    """Counts something that only one protocol has, for monitoring."""

    #: The metric is called `headwater_`, and then this.
    name: str
    meaning: str
    count: int = 0


class Service(ABC):
    """A protocol as one broker serves it: what all its connections share."""

    #: Why it is not served, as a sentence. Empty: it is.
    off: str = ""
    #: How long the broker has to recognise what is published again. 0: nothing is.
    repeat_seconds: float = 0.0

    @abstractmethod
    def session(self, terms: Terms) -> Session:
        """The broker's side of a new connection."""

    def queues(self) -> Iterable[QueueSpec]:
        """Queues that exist from the start."""
        return ()

    def queues_of_app(self, app: str) -> Iterable[QueueSpec]:
        """Queues that exist as soon as there is the app."""
        return ()

    def queue_spec(self, name: str) -> QueueSpec | None:
        """The specification of the queue that the broker knows by this name."""
        return None

    def warning(self) -> str:
        """What an operator should know when the broker has started, as a sentence."""
        return ""

    def counters(self) -> Sequence[ServiceCounter]:
        return ()


@dataclass(frozen=True, slots=True)
class Ready:
    """The broker has greeted us."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The oldest open request is settled."""

    error: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """Messages. `topic` is as much as the protocol tells: a topic, or the pattern asked for."""

    topic: str
    payloads: Sequence[bytes]
    headers: Headers = ()
    #: What to send for each of them when the application is done with it; empty: nothing.
    receipts: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Pinged:
    """The broker wants a sign of life: send it `answer`."""

    answer: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The broker ends the connection, or what it sends makes no sense."""

    reason: str


Event = Ready | Answered | Delivered | Pinged | Ended


class ClientSession(ABC):
    """The client's side of one connection: requests out as bytes, events in."""

    @abstractmethod
    def receive(self, data: bytes) -> Iterator[Event]: ...
