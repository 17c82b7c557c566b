"""The one rule about names: what is a topic."""

from headwater.errors import Code, Refusal


def check(topic: str, limit: int) -> str:
    """Return `topic` if it can be one: 1 to `limit` bytes of UTF-8 without NUL."""
    if not topic:
        raise Refusal(Code.MALFORMED, "the topic is empty")
    if "\0" in topic:
        raise Refusal(Code.MALFORMED, "the topic contains a NUL byte")
    if not topic.isascii() and any("\ud800" <= character <= "\udfff" for character in topic):
        raise Refusal(Code.MALFORMED, "the topic is not UTF-8")
    # A string of up to a quarter of the limit fits whatever its characters are.
    if len(topic) * 4 > limit and len(topic.encode()) > limit:
        raise Refusal(Code.TOO_LARGE, f"the topic is longer than {limit} bytes")
    return topic
