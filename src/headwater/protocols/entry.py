"""The entry of a protocol in the registry: all that is special to it, said in one place.

The broker, its configuration, the clients, the command line, the console and the admin API know
protocols only through their entries. An entry is light: what serves and speaks the protocol is
named as "module:attribute", and imported when someone does.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from headwater.declare import table

if TYPE_CHECKING:
    from headwater.gate import KnownApp
    from headwater.protocols.base import Service

#: The key or entry of the configuration that a sentence is about, and the sentence.
Complaint = tuple[str, str]


@table
class NoSettings:
    """The settings of a protocol that has nothing to choose."""


def no_complaints(settings: Any, topic_bytes: int) -> Iterator[Complaint]:
    return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Commands to try it with; the console shows them where there is nothing to see yet."""

    #: `{topic}` stands for a topic.
    publish: str = ""
    subscribe: str = ""
    #: One line after the other, up to the first message of a queue.
    consume: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    #: Of its URLs, of its table and listener in the configuration, of its figures in metrics.
    name: str
    #: What people call it.
    title: str
    #: Where a broker listens for it by default.
    port: int
    #: What a broker makes to serve it: a `Service`, from the settings and the apps.
    service: str
    #: The class of clients that programs and the command line use: a `headwater.client.Client`.
    client: str
    #: Whether a client that begins with these bytes speaks it. None: they do not tell yet.
    recognise: Callable[[bytes], bool | None]
    #: Its clients may wait for the broker's greeting before they say anything.
    broker_speaks_first: bool = False
    #: Those that take nearly any first bytes are asked after those that know theirs.
    generality: int = 0
    #: Its table in the configuration, which is also what services and clients are given.
    settings: type[Any] = NoSettings
    #: What is wrong with its table although each value is right, given `limits.topic_bytes`.
    check: Callable[[Any, int], Iterator[Complaint]] = no_complaints
    #: In the console, as CSS has it.
    colour: str = "var(--line-strong)"
    #: What the topic of a URL may be for `headwater sub`.
    subscribes_to: str = "a topic"
    #: How a URL or the environment tells who connects, if it has to.
    credentials: str = ""
    #: Variables of the environment that its clients read, besides those of its settings.
    client_variables: tuple[str, ...] = ()
    #: Clients take from the configuration what a URL leaves open.
    configures_clients: bool = False
    #: A subscription need not name a topic.
    nameless_subscriptions: bool = False
    #: A subscriber may have a number, under which the broker remembers its position.
    durable_subscriptions: bool = False
    #: Subscribers acknowledge each message.
    acknowledges: bool = False
    #: Only apps may connect: those of `headwater app add`, and of its settings.
    has_apps: bool = False
    #: Clients may log in as users, with their password.
    has_passwords: bool = False
    #: A command to try an app with: `{name}` and `{secret}` stand for the app's.
    app_example: str = ""
    #: Of those of all protocols, the first is shown.
    examples: Examples = Examples()

    #: Its part in `headwater demo`, a `headwater.demo.clients.Part`, if it has one.
    demo: str = ""

    @property
    def listen(self) -> str:
        """The default of its listener."""
        return f"127.0.0.1:{self.port}"

    def serve(self, settings: Any, apps: "dict[str, KnownApp]") -> "Service":
        """The protocol as one broker serves it. `apps` may change while the broker runs."""
        service: Service = resolve_name(self.service)(settings, apps)
        return service

    def client_class(self) -> Any:
        return resolve_name(self.client)
