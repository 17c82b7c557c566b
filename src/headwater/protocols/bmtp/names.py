"""Which topic a channel stands for, and which channel a topic.

    channel 42  ↔  the topic that the configuration gives it, or else `bmtp/42`

Every channel has a topic of its own. A topic is no channel's unless one of them has it: with
channel 42 configured to be `sensors/a`, nothing is called `bmtp/42` any more.
"""

import re
from collections.abc import Mapping

from headwater.errors import ConfigError
from headwater.protocols.bmtp.wire import HIGHEST_CHANNEL, NAME

# Canonical, so that no two texts name the same channel.
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,9}")


def parse_channel(text: str) -> int | None:
    """The channel that a text such as "42" names."""
    if not _DECIMAL.fullmatch(text):
        return None
    channel = int(text)
    return channel if channel <= HIGHEST_CHANNEL else None


class Channels:
    """A bijection between the channels and their topics."""

    def __init__(self, configured: Mapping[int, str] | Mapping[str, str]) -> None:
        self._topics = {_channel(key): topic for key, topic in configured.items()}
        self._channels = {topic: channel for channel, topic in self._topics.items()}
        if len(self._channels) < len(configured):
            raise ConfigError("two BMTP channels cannot have the same topic")
        for channel, topic in self._topics.items():
            self._check(channel, topic)

    def topic(self, channel: int) -> str:
        found = self._topics.get(channel)
        return f"{NAME}/{channel}" if found is None else found

    def channel(self, topic: str) -> int | None:
        """None: no channel has this topic."""
        found = self._channels.get(topic)
        return self._by_default(topic) if found is None else found

    def _by_default(self, topic: str) -> int | None:
        prefix, _, number = topic.partition("/")
        channel = parse_channel(number) if prefix == NAME else None
        return None if channel in self._topics else channel

    def _check(self, channel: int, topic: str) -> None:
        if not topic or "\0" in topic:
            raise ConfigError(f"the topic of BMTP channel {channel} is empty or contains NUL")
        other = self._by_default(topic)
        if other is not None:
            raise ConfigError(
                f"the topic of BMTP channel {channel} is that of channel {other}: {topic}"
            )


def _channel(key: int | str) -> int:
    """Keys of a configuration file are texts."""
    channel = parse_channel(str(key))
    if channel is None:
        raise ConfigError(f"a BMTP channel is a number from 0 to {HIGHEST_CHANNEL}, not: {key}")
    return channel
