"""The one rule about names: what is a topic, and how long it and what goes with it may be."""

from headwater.errors import Code, Refusal


def check(topic: str, limit: int) -> str:
    """Return `topic` if it can be one: 1 to `limit` bytes of UTF-8 without NUL."""
    if not topic:
        raise Refusal(Code.MALFORMED, "the topic is empty")
    if "\0" in topic:
        raise Refusal(Code.MALFORMED, "the topic contains a NUL byte")
    if not topic.isascii() and any("\ud800" <= character <= "\udfff" for character in topic):
        raise Refusal(Code.MALFORMED, "the topic is not UTF-8")
    check_size(topic, limit, "the topic")
    return topic


def check_size(text: str, limit: int, what: str) -> None:
    """Raise Refusal if a name has more bytes than a topic may have."""
    # A string of up to a quarter of the limit fits whatever its characters are.
    if len(text) * 4 > limit and len(text.encode()) > limit:
        raise Refusal(Code.TOO_LARGE, f"{what} is longer than {limit} bytes", limit="topic_bytes")
