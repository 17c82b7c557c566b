"""What can be chosen about Prism: apps and their secrets, queues and what they are bound to."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from headwater.filters import Filter, LevelFilter
from headwater.protocols.prism.names import DEFAULT_QUEUE, filter_of, level, topic_of, unlevel
from headwater.protocols.prism.wire import NAME
from headwater.queue_spec import DEAD, QueueSpec


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What is chosen for one queue; None: as for all of them."""

    bindings: tuple[str, ...] = ()
    prefetch: int | None = None
    ack_seconds: float | None = None
    max_deliveries: int | None = None

    @classmethod
    def of(cls, found: Any) -> "QueueSettings":
        """From a table, or from anything that has these attributes."""
        if isinstance(found, cls):
            return found
        if not isinstance(found, Mapping):
            found = {each.name: getattr(found, each.name, None) for each in fields(cls)}
        return cls(
            tuple(found.get("bindings") or ()),
            found.get("prefetch"),
            found.get("ack_seconds"),
            found.get("max_deliveries"),
        )


@dataclass(frozen=True, slots=True)
class Settings:
    #: The secret of each client_id. May change while the broker runs: it is asked each time.
    apps: Mapping[str, str] = field(default_factory=dict)
    #: By "app/queue", a QueueSettings or what looks like one. The default queue is "app/default",
    #: or "app/" for short.
    queues: Mapping[str, Any] = field(default_factory=dict)
    numeric_tags: bool = False
    sign_seconds: float = 300.0
    prefetch: int = 100
    ack_seconds: float = 60.0
    max_deliveries: int = 16


def queue_spec(settings: Settings, app: str, name: str) -> QueueSpec:
    """A queue of an app. An empty name means the default queue, whose name is `default`."""
    name = name or DEFAULT_QUEUE
    chosen = _chosen(settings, app, name)
    place = f"{level(app)}/{level(name)}"
    return QueueSpec(
        name=f"{NAME}/{place}",
        filters=_filters(name, chosen.bindings),
        prefetch=_first(chosen.prefetch, settings.prefetch),
        ack_seconds=_first(chosen.ack_seconds, settings.ack_seconds),
        max_deliveries=_first(chosen.max_deliveries, settings.max_deliveries),
        dead_topic=f"{DEAD}/{place}",
    )


def spec_of(settings: Settings, name: str) -> QueueSpec | None:
    """The queue that the broker knows by this name."""
    parts = name.split("/")
    return queue_spec(settings, *map(unlevel, parts[1:])) if len(parts) == 3 else None


def _chosen(settings: Settings, app: str, name: str) -> QueueSettings:
    found = settings.queues.get(f"{app}/{name}")
    if found is None and name == DEFAULT_QUEUE:
        found = settings.queues.get(f"{app}/")
    return QueueSettings() if found is None else QueueSettings.of(found)


def _filters(name: str, bindings: tuple[str, ...]) -> tuple[Filter, ...]:
    if bindings:
        return tuple(filter_of(binding) for binding in dict.fromkeys(bindings))
    if name == DEFAULT_QUEUE:
        return (filter_of("#"),)
    return (LevelFilter.exact(topic_of(name)),)  # as it stands: a name is no pattern


def _first(chosen: Any, common: Any) -> Any:
    return common if chosen is None else chosen
