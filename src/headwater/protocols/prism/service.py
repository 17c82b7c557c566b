"""Prism as a broker serves it: the apps that may connect, and the queues that they have."""

from collections.abc import Iterator, Sequence

from headwater.filters import Filter, LevelFilter
from headwater.gate import KnownApp
from headwater.protocols.base import Service, ServiceCounter, Terms
from headwater.protocols.prism.names import filter_of, level, topic_of, unlevel
from headwater.protocols.prism.server import PrismSession
from headwater.protocols.prism.settings import DEFAULT_QUEUE, PrismQueue, PrismSettings
from headwater.protocols.prism.wire import NAME
from headwater.queue_spec import DEAD, QueueSpec


class PrismService(Service):
    def __init__(self, settings: PrismSettings, apps: dict[str, KnownApp]) -> None:
        self.settings = settings
        # By client_id. They may change while the broker runs.
        self._apps = apps
        for app in settings.apps:
            apps[app.client_id] = KnownApp(NAME, app.client_secret, app.role)
        self._chosen = {(each.app, each.name or DEFAULT_QUEUE): each for each in settings.queues}
        self.unknown_tags = ServiceCounter(
            "prism_unknown_tags", "Acknowledgements of messages that were not the client's."
        )

    def session(self, terms: Terms) -> PrismSession:
        return PrismSession(terms, self)

    def queue(self, app: str, name: str) -> QueueSpec:
        """A queue of an app. An empty name means the default queue, whose name is `default`."""
        name = name or DEFAULT_QUEUE
        chosen = self._chosen.get((app, name))
        limits = self.settings if chosen is None else chosen
        place = f"{level(app)}/{level(name)}"
        return QueueSpec(
            name=f"{NAME}/{place}",
            filters=_filters(name, () if chosen is None else chosen.bindings),
            prefetch=limits.prefetch,
            ack_seconds=limits.ack_seconds,
            max_deliveries=limits.max_deliveries,
            dead_topic=f"{DEAD}/{place}",
            backlog_seconds=self._backlog_seconds(name, chosen),
        )

    def _backlog_seconds(self, name: str, chosen: PrismQueue | None) -> float | None:
        """The default queue is there from the start and takes every key, so it collects all that is
        published, also where nobody will ever consume it. Others are asked for by someone."""
        if chosen is not None:
            return chosen.backlog_age
        return self.settings.default_backlog_age if name == DEFAULT_QUEUE else None

    def queue_spec(self, name: str) -> QueueSpec | None:
        parts = name.split("/")
        return self.queue(*map(unlevel, parts[1:])) if len(parts) == 3 else None

    def queues(self) -> Iterator[QueueSpec]:
        return (self.queue(each.app, each.name) for each in self.settings.queues)

    def queues_of_app(self, app: str) -> Iterator[QueueSpec]:
        if self._apps[app].protocol in ("", NAME):
            yield self.queue(app, DEFAULT_QUEUE)

    def warning(self) -> str:
        if any(app.protocol in ("", NAME) for app in self._apps.values()):
            return ""
        return (
            "prism refuses everyone, because there are no apps: "
            "add one with 'headwater app add NAME'"
        )

    def counters(self) -> Sequence[ServiceCounter]:
        return (self.unknown_tags,)


def _filters(name: str, bindings: tuple[str, ...]) -> tuple[Filter, ...]:
    if bindings:
        return tuple(filter_of(binding) for binding in dict.fromkeys(bindings))
    if name == DEFAULT_QUEUE:
        return (filter_of("#"),)
    return (LevelFilter.exact(topic_of(name)),)  # as it stands: a name is no pattern
