"""What is wrong with a configuration although each of its values is right."""

import re
from collections.abc import Iterator
from dataclasses import fields

from headwater.config.tables import Config, Listen

#: The key or entry that a sentence is about, and the sentence.
Complaint = tuple[str, str]

_TOPIC_OF_CHANNEL = re.compile(r"bmtp/(0|[1-9][0-9]{0,9})")


def complaints(config: Config) -> Iterator[Complaint]:
    yield from _listeners_without_certificate(config)
    yield from _topics_of_two_channels(config)
    yield from _topics_too_long(config)
    yield from _apps_with_one_name(config)
    yield from _queues_with_one_name(config)


def _listeners_without_certificate(config: Config) -> Iterator[Complaint]:
    missing = [f"tls.{name}" for name in ("certificate", "key") if not getattr(config.tls, name)]
    for key in (f"listen.{each.name}" for each in fields(Listen)):
        address = getattr(config.listen, key.partition(".")[2])
        if address and address.secure and missing:
            needs = f'{key} begins with "tls://", which needs a certificate and its key'
            yield key, f"{needs}: set {' and '.join(missing)}"


def _topics_of_two_channels(config: Config) -> Iterator[Complaint]:
    """Otherwise nobody could say from which channel a message is."""
    owners: dict[str, int] = {}
    for number, topic in config.bmtp.channels.items():
        own = _TOPIC_OF_CHANNEL.fullmatch(topic)
        owner = owners.setdefault(topic, number)
        if own and int(own[1]) < 2**32:
            owner = int(own[1])
        if owner != number:
            key = f"bmtp.channels.{number}"
            yield key, f'{key} must have a topic of its own: "{topic}" is that of channel {owner}'


def _topics_too_long(config: Config) -> Iterator[Complaint]:
    most = config.limits.topic_bytes
    for number, topic in config.bmtp.channels.items():
        if len(topic.encode()) > most:
            key = f"bmtp.channels.{number}"
            yield key, f"{key} is longer than limits.topic_bytes, which is {most}"


def _apps_with_one_name(config: Config) -> Iterator[Complaint]:
    names = set()
    for index, app in enumerate(config.prism.apps):
        if app.client_id in names:
            yield (
                f"prism.apps[{index}].client_id",
                f'prism.apps has an app "{app.client_id}" already',
            )
        names.add(app.client_id)


def _queues_with_one_name(config: Config) -> Iterator[Complaint]:
    names = set()
    for index, queue in enumerate(config.prism.queues):
        name = queue.name or "default"  # two names for the one queue that every app has
        if (queue.app, name) in names:
            sentence = f'prism.queues has a queue "{name}" of "{queue.app}" already'
            yield f"prism.queues[{index}].name", sentence
        names.add((queue.app, name))
