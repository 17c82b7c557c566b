"""The broker at a glance, and its figures for monitoring."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater import __version__
from headwater.admin.alerts import Alerts
from headwater.admin.loop import LoopWatch
from headwater.admin.queues import QueueHandlers
from headwater.admin.rates import Rates, RateSampler
from headwater.admin.taps import Taps
from headwater.admin.topics import TopicEntry, TopicHandlers
from headwater.broker.broker import Broker
from headwater.control import Handler
from headwater.protocols.base import ServiceCounter
from headwater.tls import Keyring
from headwater.traffic import Traffic
from headwater.transport.tcp import Connections

MOST_SEGMENTS = 500


class OverviewHandlers:
    def __init__(
        self,
        *,
        broker: Broker,
        connections: Connections,
        sampler: RateSampler,
        loop: LoopWatch,
        topics: TopicHandlers,
        queues: QueueHandlers,
        taps: Taps,
        retention: Mapping[str, Any],
        data: Path,
        counters: Sequence[ServiceCounter],
        access: Callable[[], dict[str, Any]],
        keyrings: Sequence[Keyring] = (),
    ) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._connections = connections
        self._sampler = sampler
        self._loop = loop
        self._topics = topics
        self._queues = queues
        self._taps = taps
        self._retention = retention
        self._counters = counters
        self._access = access
        self._keyrings = keyrings
        self._alerts = Alerts(
            broker=broker,
            connections=connections,
            queues=queues,
            loop=loop,
            data=data,
            keyrings=keyrings,
        )

    def handlers(self) -> dict[str, Handler]:
        return {"overview": self.overview, "log.show": self.log, "metrics": self.metrics}

    async def overview(self) -> dict[str, Any]:
        await self._topics.refresh()
        await self._queues.refresh()
        rates = self._sampler.rates()
        return {
            "version": __version__,
            "started": self._sampler.started,
            "uptime_seconds": time.time() - self._sampler.started / 1e6,
            "log": self._log(),
            "loop": self._loop.overview(),
            **_flow(self._sum(), _sum_rates(rates)),
            "protocols": self._protocols(rates),
            "connections": len(self._connections.open),
            "subscriptions": self._broker.subscriptions,
            "topics": self._topics.known,
            "queues": len(self._queues.summaries),
            "dead_letters": self._dead(),
            "alerts": self._alerts.current(),
            "history": self._sampler.history.as_dict(),
        }

    async def log(self) -> dict[str, Any]:
        """The newest segments, and how the log is kept."""
        segments = self._engine.segments()
        return {
            **self._log(),
            "pieces": [
                {
                    "base": each.base,
                    "end": each.end,
                    "bytes": each.bytes,
                    "last_timestamp": each.last_timestamp,
                    "sealed": each.sealed,
                }
                for each in segments[-MOST_SEGMENTS:]
            ],
            "retention": self._retention,
        }

    async def metrics(self) -> dict[str, Any]:
        await self._queues.refresh()
        top, rest = await self._topics.top()
        return {
            "version": __version__,
            "started": self._sampler.started,
            "log": self._log(),
            "syncs": self._engine.syncs.as_dict(),
            "loop": self._loop.metrics(),
            "protocols": self._protocols(self._sampler.rates()),
            "subscriptions": self._broker.subscriptions,
            "topics": [_topic(each) for each in top],
            "other_topics": {
                "topics": len(rest),
                "count": sum(each.messages for each in rest),
                "bytes": sum(each.bytes for each in rest),
            },
            "queues": self._queues.summaries,
            "lost": self._broker.gaps.count,
            "read_errors": self._broker.read_errors.count,
            "delayed": len(self._broker.delays),
            "taps": len(self._taps),
            **self._alerts.figures(),
            "access": self._access(),
            "handshakes": self._connections.handshakes,
            "certificates": [
                {"listener": each.name, "expires": each.expires} for each in self._keyrings
            ],
            "counters": [
                {"name": each.name, "meaning": each.meaning, "count": each.count}
                for each in self._counters
            ],
        }

    def _log(self) -> dict[str, Any]:
        engine = self._engine
        half, most = engine.syncs.quantiles(0.5, 0.99)
        segments = engine.segments()
        return {
            "start": engine.start,
            "watermark": engine.watermark,
            "end": engine.end,
            "timestamp": engine.timestamp,
            "bytes": sum(each.bytes for each in segments),
            "segments": len(segments),
            "sync_ms_p50": round(half * 1000, 3),
            "sync_ms_p99": round(most * 1000, 3),
            "refusal": engine.refusal,
        }

    def _protocols(self, rates: Mapping[str, Rates]) -> list[dict[str, Any]]:
        there = Counter(each.session.protocol for each in self._connections.open.values())
        return [
            {
                "name": name,
                "connections": there[name],
                "accepted": self._connections.accepted[name],
                **_flow(traffic, rates.get(name, Rates())),
            }
            for name, traffic in sorted(self._connections.traffic.items())
        ]

    def _sum(self) -> Traffic:
        total = Traffic()
        for traffic in self._connections.traffic.values():
            total.add(traffic)
        return total

    def _dead(self) -> int:
        return sum(each["dead"] for each in self._queues.summaries)


def _flow(traffic: Traffic, rates: Rates) -> dict[str, Any]:
    return {
        "in": {
            "messages": traffic.messages_in,
            "bytes": traffic.bytes_in,
            "messages_per_second": round(rates.messages_in, 1),
            "bytes_per_second": round(rates.bytes_in, 1),
        },
        "out": {
            "messages": traffic.messages_out,
            "bytes": traffic.bytes_out,
            "messages_per_second": round(rates.messages_out, 1),
            "bytes_per_second": round(rates.bytes_out, 1),
        },
    }


def _sum_rates(rates: Mapping[str, Rates]) -> Rates:
    return Rates(
        sum(each.messages_in for each in rates.values()),
        sum(each.bytes_in for each in rates.values()),
        sum(each.messages_out for each in rates.values()),
        sum(each.bytes_out for each in rates.values()),
    )


def _topic(entry: TopicEntry) -> dict[str, Any]:
    return {"topic": entry.topic, "count": entry.messages, "bytes": entry.bytes}
