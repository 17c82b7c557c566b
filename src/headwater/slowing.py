"""Why a connection is slowed, how often, and for how long: of one connection, and of all.

A slowed connection is not read from, so it cannot send more than the broker can take; nothing that
it has sent is lost. The clock is looked at only when a slowdown begins and ends: that is rare.
"""

import time
from time import perf_counter

COST = "cost"
LOG = "log"
SUBSCRIPTIONS = "subscriptions"
ANSWERS = "answers"
MEMORY = "memory"
LOGIN = "login"
RATE = "rate"
FAN_OUT = "fan_out"
SAVING = "saving"
SHUTDOWN = "shutdown"

#: All reasons, in the order in which they are shown, each with its meaning for a person.
REASONS = {
    COST: "it costs more than its share of the loop, and others go first",
    LOG: "the disk is behind: too much waits to be written",
    SUBSCRIPTIONS: "it publishes much and reads little of what its subscriptions send it",
    ANSWERS: "it does not read the answers to what it sends",
    MEMORY: "all clients together have begun too many large messages",
    RATE: "it publishes faster than it may",
    FAN_OUT: "what it publishes goes to very many, who get it in turns",
    LOGIN: "its password is being checked",
    SAVING: "a queue or subscription of its that is new is being saved",
    SHUTDOWN: "the broker is shutting down",
}


class Slowdown:
    """For one reason."""

    __slots__ = ("_seconds", "_seen", "now", "share", "since", "times")

    def __init__(self) -> None:
        #: How often it has begun.
        self.times = 0
        #: How many are slowed now.
        self.now = 0
        #: When it began the last time, in microseconds since 1970.
        self.since = 0
        #: The part of the time between the last two samples.
        self.share = 0.0
        self._seconds = 0.0  # less the moments at which those of now began
        self._seen = 0.0

    def begin(self, at: float) -> None:
        self.times += 1
        self.now += 1
        self.since = time.time_ns() // 1000
        self._seconds -= at

    def end(self, at: float) -> None:
        self.now -= 1
        self._seconds += at

    def seconds(self, at: float) -> float:
        """How long it has been, those of now included."""
        return max(self._seconds + self.now * at, 0.0)

    def sample(self, at: float, passed: float) -> None:
        seconds = self.seconds(at)
        self.share = min(max((seconds - self._seen) / passed, 0.0), 1.0)
        self._seen = seconds


class Slowdowns:
    """By reason. Those of a connection are counted for `everyone` as well."""

    __slots__ = ("_everyone", "by_reason")

    def __init__(self, everyone: "Slowdowns | None" = None) -> None:
        self._everyone = everyone
        self.by_reason: dict[str, Slowdown] = {}

    def of(self, why: str) -> Slowdown:
        slowdown = self.by_reason.get(why)
        if slowdown is None:
            slowdown = self.by_reason[why] = Slowdown()
        return slowdown

    def begin(self, why: str) -> None:
        """The connection is slowed for this reason, if it was not yet."""
        slowdown = self.of(why)
        if not slowdown.now:
            at = perf_counter()
            slowdown.begin(at)
            if self._everyone is not None:
                self._everyone.of(why).begin(at)

    def end(self, why: str) -> None:
        """It is not slowed for this reason any more, if it was."""
        slowdown = self.by_reason.get(why)
        if slowdown is not None and slowdown.now:
            at = perf_counter()
            slowdown.end(at)
            if self._everyone is not None:
                self._everyone.of(why).end(at)

    def end_all(self) -> None:
        for why in self.by_reason:
            self.end(why)

    def sample(self, at: float, passed: float) -> None:
        """Note what part of the seconds that have passed since the last sample it was slowed."""
        for slowdown in self.by_reason.values():
            slowdown.sample(at, passed)

    @property
    def now(self) -> bool:
        return any(slowdown.now for slowdown in self.by_reason.values())

    @property
    def share(self) -> float:
        """The part of the time between the last two samples, for the reason with the most."""
        return max((slowdown.share for slowdown in self.by_reason.values()), default=0.0)

    @property
    def seconds(self) -> float:
        """How long it has been, for all reasons together."""
        at = perf_counter()
        return sum(slowdown.seconds(at) for slowdown in self.by_reason.values())
