"""What needs an operator's attention, and when it was first seen.

    log      the log refuses messages
    state    positions of subscribers and queues cannot be saved, or did not fit the log
    disk     the disk is nearly full, or cannot be looked at
    gap      retention took messages before a subscriber or a queue got them
    reads    the log could not be read for a subscriber or a queue
    slow     subscribers are far behind
    dead     queues have dead letters
    backlog  messages wait in queues that nobody consumes
    dropped  queues that nobody consumes have dropped messages
    lag      the event loop comes late to what is due: everyone waits
    greedy   a client takes most of the loop's time, and there is none left
    tls      a certificate expires soon, or has; or the new one cannot be used

There is at most one of each kind. A publisher that is slowed down is none: it should be.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headwater.admin.loop import LoopWatch
from headwater.admin.queues import QueueHandlers
from headwater.broker.broker import Broker
from headwater.tls import Keyring
from headwater.transport.tcp import Connections

NAMED_QUEUES = 3

Severity = Literal["warning", "critical"]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on something needs attention."""

    #: A disk is nearly full with less room than this, if that is also a small share of it: a large
    #: disk has room for long with 5 %, and a small one may never have had a gibibyte.
    free_bytes: int = 1 << 30
    free_share: float = 0.05
    #: What has happened once (missed messages, failed reads) is worth an alert for so long.
    gap_seconds: float = 900.0
    #: Who is so many offsets behind is slow.
    slow_offsets: int = 100_000
    #: A queue that nobody consumes has a backlog with so many messages, or if one waits so long: at
    #: most half of the time after which the queue drops it.
    backlog_messages: int = 100_000
    backlog_seconds: float = 86400.0
    #: Messages that a queue has dropped are worth an alert for so long.
    dropped_seconds: float = 86400.0
    #: The loop lags if it comes so late to one of a hundred things that are due.
    lag_seconds: float = 0.1
    #: A client is greedy that has more than half of the loop for so long, while it is so busy.
    greedy_seconds: float = 10.0
    greedy_busy: float = 0.9

    def is_backlog(self, messages: int, age: float, limit: float | None) -> bool:
        """Whether so many messages wait too long for a consumer: the oldest since `age` seconds, in
        a queue that drops them after `limit`."""
        patience = self.backlog_seconds if limit is None else min(limit / 2, self.backlog_seconds)
        return messages >= self.backlog_messages or (messages > 0 and age >= patience)

    def is_nearly_full(self, free: int, size: int) -> bool:
        return free < min(self.free_bytes, size * self.free_share)


DEFAULT = Thresholds()


@dataclass(frozen=True, slots=True)
class Alert:
    severity: Severity
    kind: str
    message: str


class Alerts:
    def __init__(
        self,
        *,
        broker: Broker,
        connections: Connections,
        queues: QueueHandlers,
        loop: LoopWatch,
        data: Path,
        keyrings: Sequence[Keyring] = (),
        thresholds: Thresholds = DEFAULT,
    ) -> None:
        self._broker = broker
        self._connections = connections
        self._queues = queues
        self._loop = loop
        self._data = data
        self._keyrings = keyrings
        self._thresholds = thresholds
        self._since: dict[str, int] = {}  # by kind
        self._began = time.time()

    def current(self) -> list[dict[str, Any]]:
        alerts = list(self._find())
        now = time.time_ns() // 1000
        self._since = {alert.kind: self._since.get(alert.kind, now) for alert in alerts}
        return [
            {
                "severity": alert.severity,
                "kind": alert.kind,
                "message": alert.message,
                "since": self._since[alert.kind],
            }
            for alert in alerts
        ]

    def figures(self) -> Mapping[str, int]:
        """Figures that alerts and metrics share."""
        slow = behind = 0
        for lag in self._broker.lags():
            behind += 1
            slow += lag >= self._thresholds.slow_offsets
        paused = sum(each.paused for each in self._connections.open.values())
        return {"behind": behind, "slow": slow, "paused": paused}

    def _find(self) -> Iterator[Alert]:
        if (refusal := self._broker.engine.refusal) is not None:
            yield Alert("critical", "log", refusal)
        if (fault := self._broker.engine.notes.fault) is not None:
            what = "positions of subscribers and queues cannot be saved"
            yield Alert("critical", "state", f"{what}: {fault}; after a crash, messages come again")
        elif self._broker.engine.notes.warning is not None and self._is_recent(self._began):
            yield Alert("warning", "state", self._broker.engine.notes.warning)
        yield from self._disk()
        yield from self._gap()
        yield from self._reads()
        yield from self._slow()
        yield from self._dead()
        yield from self._backlog()
        yield from self._dropped()
        yield from self._lag()
        yield from self._greedy()
        yield from self._tls()

    def _is_recent(self, at: float) -> bool:
        return time.time() - at < self._thresholds.gap_seconds

    def _disk(self) -> Iterator[Alert]:
        try:
            room = os.statvfs(self._data)
        except OSError as error:
            yield Alert("critical", "disk", f"the data directory is gone: {error.strerror}")
            return
        free, size = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
        if self._thresholds.is_nearly_full(free, size):
            yield Alert("warning", "disk", f"the disk has {free >> 20} MiB left")

    def _gap(self) -> Iterator[Alert]:
        gaps = self._broker.gaps
        if gaps.count and self._is_recent(gaps.at):
            # Which of them were wanted, nobody can tell any more.
            taken = f"retention took up to {_some(gaps.count, 'message')}"
            late = "before a subscriber or a queue got them, since the broker started"
            yield Alert("warning", "gap", f"{taken} {late}")

    def _reads(self) -> Iterator[Alert]:
        errors = self._broker.read_errors
        if errors.count and self._is_recent(errors.at):
            failed = f"{_some(errors.count, 'read')} of the log failed for subscribers or queues"
            yield Alert("critical", "reads", f"{failed}; the last one: {errors.last}")

    def _slow(self) -> Iterator[Alert]:
        if slow := self.figures()["slow"]:
            who = "a subscriber is" if slow == 1 else f"{slow} subscribers are"
            far = f"{self._thresholds.slow_offsets:,} messages or more behind"
            yield Alert("warning", "slow", f"{who} {far}")

    def _dead(self) -> Iterator[Alert]:
        dead = {each["name"]: each["dead"] for each in self._queues.summaries if each["dead"]}
        if dead:
            letters = _some(sum(dead.values()), "dead letter")
            yield Alert("warning", "dead", f"{letters} in {_names(dead)}")

    def _backlog(self) -> Iterator[Alert]:
        waiting = {
            each["name"]: each["waiting"]
            for each in self._queues.summaries
            if self._is_unconsumed(each)
        }
        if waiting:
            messages = _some(sum(waiting.values()), "message")  # or more, if there are very many
            what = f"nobody consumes {_names(waiting)}: {messages} waiting"
            yield Alert("warning", "backlog", what)

    def _is_unconsumed(self, queue: Mapping[str, Any]) -> bool:
        """Those that only exist on disk, such as the queues of an app that was removed, are left
        out: nobody can be meant to consume them."""
        if queue["consumers"] or queue["name"] not in self._broker.queues:
            return False
        age = 0.0 if queue["oldest"] is None else time.time() - queue["oldest"] / 1e6
        return self._thresholds.is_backlog(queue["waiting"], age, queue["backlog_seconds"])

    def _dropped(self) -> Iterator[Alert]:
        since = time.time() - self._thresholds.dropped_seconds
        dropped = {
            queue.spec.name: queue.dropped
            for queue in self._broker.queues.values()
            if queue.dropped and queue.dropped_at > since
        }
        if dropped:
            messages = _some(sum(dropped.values()), "message")
            late = "that nobody consumed in time, since the broker started"
            yield Alert("warning", "dropped", f"{_names(dropped)} dropped {messages} {late}")

    def _lag(self) -> Iterator[Alert]:
        if (lag := self._loop.lag_p99) >= self._thresholds.lag_seconds:
            late = f"the event loop is late by {lag * 1000:.0f} ms (p99 of the last minute)"
            yield Alert("warning", "lag", f"{late}; all clients wait for so long")

    def _greedy(self) -> Iterator[Alert]:
        if self._loop.busy < self._thresholds.greedy_busy:
            return  # there is time left for everyone
        before = self._connections.clock.time() - self._thresholds.greedy_seconds
        for each in self._connections.open.values():
            if 0 < each.meter.over_half_since <= before:
                share = f"{each.meter.share:.0%} of the event loop"
                yield Alert("warning", "greedy", f"{each} takes {share}, and none is left")
                return

    def _tls(self) -> Iterator[Alert]:
        warnings = [sentence for each in self._keyrings if (sentence := each.warning())]
        if warnings:
            yield Alert("warning", "tls", "; ".join(warnings))


def _names(queues: Mapping[str, Any]) -> str:
    more = " and others" if len(queues) > NAMED_QUEUES else ""
    return ", ".join(list(queues)[:NAMED_QUEUES]) + more


def _some(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
