"""The language between codecs and broker: commands one way, an outlet the other way.

A codec (`protocols/`) turns bytes into commands; the broker carries them out and knows no protocol.
What the broker wants of a connection is the `Outlet`, and a connection of the broker the
`BrokerPeer`; who implements them is nobody's business. They are classes, and not protocols of
typing, because calling a method of those takes much longer when it is compiled.

Answers keep the order of the requests: every answer waits until all that its connection published
before is durable. So a command carries its answer with it, as finished bytes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mypy_extensions import mypyc_attr

from headwater.errors import Refusal
from headwater.filters import Filter
from headwater.message import Batch, Run
from headwater.queue_spec import QueueSpec
from headwater.rights import Rights
from headwater.traffic import Meter


@dataclass(frozen=True, slots=True)
class Advertise:
    """The client is about to publish to `topic`: may it?"""

    topic: str
    answer: bytes = b""
    request: Any = None


# Not frozen, and with a constructor that can be compiled: it is made for every message of a fleet.
@dataclass(slots=True, init=False)
class Publish:
    """Append a run to the log and hand it to subscribers."""

    run: Run
    answer: bytes  # sent when the run is durable
    echo: bool  # the connection's own subscriptions get it too
    request: Any  # the codec's own note, for `refuse`
    #: Store each message exactly once: the number that the client has given it, which no other
    #: message of the connection has until it is answered. Empty: repeats are stored like others.
    once: Sequence[int]
    again: bool  # may be a repeat: what was accepted lately is not stored again

    def __init__(
        self,
        run: Run,
        answer: bytes = b"",
        echo: bool = True,
        request: Any = None,
        once: Sequence[int] = (),
        again: bool = False,
    ) -> None:
        self.run = run
        self.answer = answer
        self.echo = echo
        self.request = request
        self.once = once
        self.again = again


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Add a subscription, named by `key` within its connection."""

    key: tuple[str, str]
    filter: Filter
    answer: bytes = b""
    durable: str | None = None  # the name that the broker remembers its position under
    request: Any = None
    #: What a durable client is called. Earlier versions remembered its position under this.
    known_as: str | None = None
    #: A durable subscription that is new begins with all that is retained, or with what comes next.
    from_start: bool = True


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    key: tuple[str, str]
    answer: bytes = b""
    request: Any = None


@dataclass(frozen=True, slots=True)
class Consume:
    """Take messages from a queue, under the name `key` within the connection. Doing so again is
    harmless."""

    key: tuple[str, str]
    queue: QueueSpec
    answer: bytes = b""
    request: Any = None
    #: How many messages the client wants to hold unacknowledged. None: as many as the queue says.
    prefetch: int | None = None


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The client is done with these messages of the queue that it consumes as `key`."""

    key: tuple[str, str]
    offsets: Sequence[int]


@dataclass(frozen=True, slots=True)
class Password:
    """The client says that it is a user, and gives the password."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Signature:
    """The client says that it is an app; `proves` tells whether it knows the app's secret, and does
    the same work if there is no such app."""

    protocol: str
    app: str
    proves: Callable[[str], bool] = field(repr=False)


@dataclass(frozen=True, slots=True)
class SharedSecret:
    """The client gives the secret of an app of its protocol, without saying which."""

    protocol: str
    secret: bytes = field(repr=False)


#: How a client shows who it is.
Claim = Password | Signature | SharedSecret


@dataclass(frozen=True, slots=True)
class Identify:
    """The client says who it is, and may prove it."""

    name: str
    claim: Claim | None = None
    answer: bytes = b""
    request: Any = None
    sole: str = ""  # a name that only one open connection may have at a time


@dataclass(frozen=True, slots=True)
class Respond:
    """Bytes for the client that need no work of the broker, but their turn."""

    answer: bytes


@dataclass(frozen=True, slots=True)
class Confirm:
    """The client has received everything before `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class Close:
    """Send `answer` in its turn, then end the connection."""

    answer: bytes = b""
    reason: str = ""


Command = (
    Advertise
    | Publish
    | Subscribe
    | Unsubscribe
    | Consume
    | Acknowledge
    | Identify
    | Respond
    | Confirm
    | Close
)


class Subscription(Protocol):
    """What a codec needs to know of a subscription to deliver to it."""

    @property
    def key(self) -> tuple[str, str]: ...
    @property
    def durable(self) -> bool: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Outlet(ABC):
    """One connection, as the broker sees it."""

    #: Counts what it publishes and gets.
    meter: Meter
    #: Where the client is, as "host:port".
    address: str

    @abstractmethod
    def deliver(self, batch: Batch, subscriptions: tuple[Subscription, ...]) -> int:
        """Send a batch, once for each of the connection's subscriptions.

        To how many of them, from the first on: less than all if the client reads too slowly; then
        the peer hears when everything is sent.
        """

    @abstractmethod
    def offer(
        self, batch: Batch, key: tuple[str, str], again: bool, most: int
    ) -> tuple[int, Sequence[int]] | None:
        """Send the first messages of a batch from a queue, at most so many.

        The offset behind the last one that was taken, and the offsets that the client is going to
        acknowledge. None: there is no room now; the peer hears when everything is sent, or an
        acknowledgement makes room. `again`: it may have been delivered before.
        """

    @abstractmethod
    def retract(self, key: tuple[str, str], offsets: Sequence[int]) -> None:
        """These messages of a queue are no longer the client's to acknowledge."""

    @abstractmethod
    def respond(self, answer: bytes) -> None:
        """Send an answer."""

    @abstractmethod
    def refuse(self, command: Command, error: Refusal) -> None:
        """Tell the client that a command was declined."""

    @abstractmethod
    def pause(self, why: str) -> None:
        """Stop reading from the client until `resume` was called for every reason (`slowing`)."""

    @abstractmethod
    def resume(self, why: str) -> None:
        """Read on, as far as this reason is concerned."""

    @abstractmethod
    def close(self, answer: bytes, reason: str) -> None:
        """Send `answer`, then end the connection."""

    @abstractmethod
    def challenge(self) -> None:
        """Another client claims this one's place: see whether it is still there, and if it does not
        answer within some seconds, end the connection."""

    @abstractmethod
    def dismiss(self, error: Refusal) -> None:
        """Say goodbye in the protocol's own words, then end the connection."""


@mypyc_attr(allow_interpreted_subclasses=True)
class BrokerPeer(ABC):
    """The broker, as one connection sees it."""

    #: What the client may do, as who it is now.
    rights: Rights

    @property
    @abstractmethod
    def position(self) -> int:
        """How far into the log this connection is."""

    @abstractmethod
    def handle(self, command: Command) -> None: ...

    @abstractmethod
    def drained(self) -> None:
        """The connection has sent all it had."""

    @abstractmethod
    def leave(self) -> None:
        """The connection is gone."""
