"""Channels and topics: two names for one thing.

    channel               topic
    shop, orders          shop/orders
    a/b%, x/y             a%2Fb%25/x/y          the first `/` of a topic ends the namespace
    "", lobby             lobby                 without a namespace there is no `/`
    "", a/b               a%2Fb

Every channel is a topic, and no two are the same one. A topic that no channel is called by cannot
be reached: one that begins with `/`, or whose first level has a `%` that stands for nothing.
"""

import re

from headwater.errors import Code, Refusal

#: Of the protocol.
NAME = "crystal"

_NOT_QUOTED = re.compile("%(?!25|2F)")


def topic_of(namespace: str, name: str) -> str:
    """What the broker calls a channel. It may be too long for a topic, or empty."""
    return f"{_quote(namespace)}/{name}" if namespace else _quote(name)


def channel_of(topic: str) -> tuple[str, str]:
    """The namespace and name of the channel that a topic is."""
    first, slash, rest = topic.partition("/")
    if not first or _NOT_QUOTED.search(first):
        raise Refusal(Code.MALFORMED, f"no channel has this topic: {topic}")
    return (_unquote(first), rest) if slash else ("", _unquote(first))


def _quote(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def _unquote(text: str) -> str:
    return text.replace("%2F", "/").replace("%25", "%")
