"""Prism's names: routing keys, bindings and queues, and what they are to the broker.

In a routing key words are separated by `.`, in a topic levels by `/`. The two characters change
places, so each key has one topic and each topic one key: `order.new` is `order/new`, and a `/` that
stands in a key is a `.` in the topic.
"""

from headwater.filters import BindingFilter, Filter
from headwater.queue_spec import DEAD

_SWAP = str.maketrans("./", "/.")


def topic_of(key: str) -> str:
    return key.translate(_SWAP)


def key_of(topic: str) -> str:
    return topic.translate(_SWAP)


def filter_of(binding: str) -> Filter:
    """The topics that a binding takes: `*` is one word, `#` zero or more.

    Dead letters are only taken by a binding whose first word asks for them. Otherwise a queue bound
    to everything would take its own dead letters, and those of all others, over and over.
    """
    return BindingFilter.parse(topic_of(binding), DEAD)


def level(name: str) -> str:
    """An app's or a queue's name as one level of a topic."""
    return name.replace("%", "%25").replace("/", "%2F")


def unlevel(text: str) -> str:
    """The name that one level of a topic stands for."""
    return text.replace("%2F", "/").replace("%25", "%")
