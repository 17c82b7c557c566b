"""What needs someone's attention, and since when."""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headwater.administration.queues import QueueDesk
from headwater.broker.broker import Broker
from headwater.broker.cursor import GAPS
from headwater.transport.tcp import Connections

# A disk with less room than this, or with a smaller share of it, is nearly full.
LOW_BYTES = 1 << 30
LOW_SHARE = 0.05
# Messages that someone missed are worth an alert for so long.
GAP_SECONDS = 900.0
# Who is so many offsets behind is slow.
SLOW_OFFSETS = 100_000

Severity = Literal["warning", "critical"]


@dataclass(frozen=True, slots=True)
class Alert:
    severity: Severity
    kind: str
    message: str


class Alerts:
    def __init__(
        self, broker: Broker, connections: Connections, queues: QueueDesk, data: Path
    ) -> None:
        self._broker = broker
        self._connections = connections
        self._queues = queues
        self._data = data
        self._since: dict[str, int] = {}  # by kind

    def current(self) -> list[dict[str, Any]]:
        alerts = list(self._find())
        kinds = {alert.kind for alert in alerts}
        self._since = {kind: at for kind, at in self._since.items() if kind in kinds}
        now = time.time_ns() // 1000
        return [
            {
                "severity": alert.severity,
                "kind": alert.kind,
                "message": alert.message,
                "since": self._since.setdefault(alert.kind, now),
            }
            for alert in alerts
        ]

    def figures(self) -> Mapping[str, int]:
        """What is counted for alerts, and for metrics too."""
        slow = behind = 0
        for lag in self._broker.lags():
            behind += 1
            slow += lag >= SLOW_OFFSETS
        paused = sum(each.paused for each in self._connections.open.values())
        return {"behind": behind, "slow": slow, "paused": paused}

    def _find(self) -> Iterator[Alert]:
        engine, figures = self._broker.engine, self.figures()
        if engine.refusal is not None:
            yield Alert("critical", "log", engine.refusal)
        yield from self._disk()
        if GAPS.count and time.time() - GAPS.at < GAP_SECONDS:
            yield Alert(
                "warning", "gap", f"retention took {GAPS.count} messages before they were read"
            )
        if figures["slow"]:
            some = f"{figures['slow']} subscribers are"
            who = "a subscriber is" if figures["slow"] == 1 else some
            yield Alert("warning", "slow", f"{who} more than {SLOW_OFFSETS} offsets behind")
        if figures["paused"]:
            yield Alert(
                "warning", "paused", f"{figures['paused']} clients are not read from just now"
            )
        dead = {each["name"]: each["dead"] for each in self._queues.summaries if each["dead"]}
        if dead:
            names = ", ".join(list(dead)[:3]) + (" and others" if len(dead) > 3 else "")
            yield Alert("warning", "dead", f"{sum(dead.values())} dead letters in {names}")

    def _disk(self) -> Iterator[Alert]:
        room = os.statvfs(self._data)
        free, size = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
        if size and free < min(LOW_BYTES, size * LOW_SHARE):
            yield Alert("warning", "disk", f"the disk has {free >> 20} MiB left")
