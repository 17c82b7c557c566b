"""Patterns that Flight clients read topics with.

A thread of Flight can take its time, but a match holds the interpreter, and with it everyone. So of
patterns whose price nobody knows one match runs at a time, and each request has so many seconds for
all of them; what a topic was found to be is kept.
"""

import threading
import time

from headwater.courtesy import Courtesy
from headwater.errors import Code, Refusal
from headwater.filters import RegexFilter

#: Processor time for the matches of one request. A usual pattern takes a microsecond for a topic.
MATCH_SECONDS = 10.0
#: Of so many topics is kept whether they match.
MOST_KNOWN = 100_000
MOST_PATTERN_BYTES = 64 * 1024

_one_at_a_time = threading.Lock()


class TopicPattern:
    """Of one request, in one thread."""

    def __init__(self, text: str) -> None:
        if len(text.encode()) > MOST_PATTERN_BYTES:
            raise Refusal(Code.TOO_LARGE, f"a pattern has at most {MOST_PATTERN_BYTES} bytes")
        self._filter = RegexFilter.parse(text)
        self._known: dict[str, bool] = {}
        self._left = MATCH_SECONDS
        self._courtesy = Courtesy()

    def matches(self, topic: str) -> bool:
        known = self._known.get(topic)
        if known is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            known = self._known[topic] = self._ask(topic)
        return known

    def _ask(self, topic: str) -> bool:
        if self._filter.simple:
            return self._filter.matches(topic)
        began = time.thread_time()
        with _one_at_a_time:
            found = self._filter.matches(topic)
        self._left -= time.thread_time() - began
        if self._left < 0:
            raise Refusal(
                Code.TOO_LARGE,
                f"this pattern takes more than {MATCH_SECONDS:g} s for the topics of the log; "
                "give topics, or a simpler pattern",
            )
        self._courtesy.show()
        return found
