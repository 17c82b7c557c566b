"""What can be chosen about Prism: apps and their secrets, queues and what they are bound to."""

from collections.abc import Iterator

from headwater import units
from headwater.actions import APP_ROLE
from headwater.declare import array, inherited, required, setting, table
from headwater.protocols.entry import Complaint

MOST_PREFETCH = 65535
_PREFETCH = units.whole_number(1, MOST_PREFETCH)
_ACK_SECONDS = units.number(0.1, 7 * 86400)
_MAX_DELIVERIES = units.whole_number(1, 1_000_000)
_BACKLOG_AGE = units.or_off(units.duration("1s", "36500d"))

#: What the queue of an empty name is called. Asking for it by this name is the same.
DEFAULT_QUEUE = "default"


@table
class PrismApp:
    client_id: str = required(units.client_id(), "The name of the app.")
    client_secret: str = required(units.app_secret(), "What the app signs with.")
    role: str = setting(units.client_id(), APP_ROLE, "The role of the app.")


@table
class PrismQueue:
    app: str = required(
        units.client_id(),
        "The app that it belongs to: one from above, or from `headwater app add`.",
    )
    name: str = required(
        units.text(0, 256), 'The name that clients ask for; "" is the default queue of the app.'
    )
    bindings: tuple[str, ...] = setting(
        units.texts(units.text(1, 256)),
        [],
        "Patterns of the routing keys that it takes; `*` is one word, `#` any number. Words are "
        "separated by `.` where other protocols' topics have `/`: `order.*` takes the topic "
        "`order/new`, and not `order.new`. Without any, the key that is equal to its name, and the "
        "default queue every key.",
    )
    prefetch: int = inherited(_PREFETCH, "prism.prefetch", "The same as there, for this queue.")
    ack_seconds: float = inherited(
        _ACK_SECONDS, "prism.ack_seconds", "The same as there, for this queue."
    )
    max_deliveries: int = inherited(
        _MAX_DELIVERIES, "prism.max_deliveries", "The same as there, for this queue."
    )
    backlog_age: float | None = setting(
        _BACKLOG_AGE,
        "off",
        "How long a message waits while nobody consumes the queue, before the queue drops it.",
    )


@table
class PrismSettings:
    numeric_tags: bool = setting(
        units.boolean(),
        False,
        "Whether tags of messages are numbers in JSON, for clients that know no others.",
    )
    sign_seconds: float = setting(
        units.number(1, 86400),
        300,
        "How far the time in a signature may be from the broker's clock.",
    )
    # One deployed client cannot read more than one message at a time without fail.
    prefetch: int = setting(
        _PREFETCH,
        1,
        "How many messages a consumer may have that it has not acknowledged, if it asks for no "
        "number in its handshake.",
    )
    ack_seconds: float = setting(
        _ACK_SECONDS,
        60,
        "How long a consumer may take to acknowledge a message before another one gets it.",
    )
    max_deliveries: int = setting(
        _MAX_DELIVERIES,
        16,
        "How often a message is delivered before it goes to the dead letters of its queue.",
    )
    default_backlog_age: float | None = setting(
        _BACKLOG_AGE,
        "7d",
        "How long a message waits in the default queue of an app while nobody consumes it, before "
        "the queue drops it. It holds for those that `prism.queues` does not name.",
    )
    apps: tuple[PrismApp, ...] = array(
        PrismApp, "Apps that may connect, besides those that were made with `headwater app add`."
    )
    queues: tuple[PrismQueue, ...] = array(
        PrismQueue, "Queues that exist from the start, or have bindings or limits of their own."
    )


def check(settings: PrismSettings, topic_bytes: int) -> Iterator[Complaint]:
    yield from _apps_with_one_name(settings)
    yield from _queues_with_one_name(settings)


def _apps_with_one_name(settings: PrismSettings) -> Iterator[Complaint]:
    names = set()
    for index, app in enumerate(settings.apps):
        if app.client_id in names:
            yield (
                f"prism.apps[{index}].client_id",
                f'prism.apps has an app "{app.client_id}" already',
            )
        names.add(app.client_id)


def _queues_with_one_name(settings: PrismSettings) -> Iterator[Complaint]:
    names = set()
    for index, queue in enumerate(settings.queues):
        name = queue.name or DEFAULT_QUEUE  # two names for the one queue that every app has
        if (queue.app, name) in names:
            sentence = f'prism.queues has a queue "{name}" of "{queue.app}" already'
            yield f"prism.queues[{index}].name", sentence
        names.add((queue.app, name))
