"""What can be chosen about BMTP, and what is wrong with a choice."""

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from headwater import units
from headwater.declare import pairs, setting, table
from headwater.protocols.entry import Complaint

Dialect = Literal["document", "bitmq"]
EnvelopeName = Literal["json", "binary"]
Delivery = Literal["broadcast", "balanced"]

_TOPIC_OF_CHANNEL = re.compile(r"bmtp/(0|[1-9][0-9]{0,9})")


@table
class BmtpSettings:
    dialect: Dialect = setting(
        units.choice("document", "bitmq"),
        "document",
        '"bitmq" is what a deployed server and its clients speak: a PUB of QoS 0 has no stream ID, '
        "messages may be delivered later and expire, and malformed ones get PUBACK 2.",
    )
    envelope: EnvelopeName = setting(
        units.choice("json", "binary"),
        "json",
        "How a payload carries the channel: in a JSON object, or in four bytes in front.",
    )
    delivery: Delivery = setting(
        units.choice("broadcast", "balanced"),
        "broadcast",
        "Whether a message goes to every subscriber of its channel, or to one of them.",
    )
    idle_seconds: float = setting(
        units.number(0.1, 86400), 60, "How long a client may be silent before it is disconnected."
    )
    dedup_seconds: float = setting(
        units.number(0.1, 86400),
        120,
        "How long a message of QoS 2 is remembered, so that it is not stored again when it is "
        "sent again.",
    )
    empty_channel_age: float | None = setting(
        units.or_off(units.duration("1s", "36500d")),
        "10m",
        "How long the broker remembers a channel that nobody subscribes to, if it has never had a "
        "message for a subscriber. Nobody notices when it is forgotten.",
    )
    unused_channel_age: float | None = setting(
        units.or_off(units.duration("1s", "36500d")),
        "7d",
        "How long the broker remembers what subscribers of a channel have received, while nobody "
        "subscribes to it. Who comes later gets all that is retained, like a new subscriber.",
    )
    channels: Mapping[int, str] = pairs(
        units.whole_text(0, 2**32 - 1),
        units.topic(),
        "The topics of channels, by number. A channel that is not here has the topic "
        "`bmtp/NUMBER`.",
    )


def check(settings: BmtpSettings, topic_bytes: int) -> Iterator[Complaint]:
    yield from _topics_of_two_channels(settings)
    yield from _topics_too_long(settings, topic_bytes)


def _topics_of_two_channels(settings: BmtpSettings) -> Iterator[Complaint]:
    """Otherwise nobody could say from which channel a message is."""
    owners: dict[str, int] = {}
    for number, topic in settings.channels.items():
        own = _TOPIC_OF_CHANNEL.fullmatch(topic)
        owner = owners.setdefault(topic, number)
        if own and int(own[1]) < 2**32:
            owner = int(own[1])
        if owner != number:
            key = f"bmtp.channels.{number}"
            yield key, f'{key} must have a topic of its own: "{topic}" is that of channel {owner}'


def _topics_too_long(settings: BmtpSettings, most: int) -> Iterator[Complaint]:
    for number, topic in settings.channels.items():
        if len(topic.encode()) > most:
            key = f"bmtp.channels.{number}"
            yield key, f"{key} is longer than limits.topic_bytes, which is {most}"
