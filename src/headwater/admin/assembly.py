"""Puts together what watches a broker, and the desks that answer for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from headwater.admin import (
    ConnectionDesk,
    MessageDesk,
    OverviewDesk,
    PipelineDesk,
    QueueDesk,
    TopicDesk,
)
from headwater.admin.pipelines import Board
from headwater.admin.queue_overview import Overview
from headwater.admin.rates import Observatory
from headwater.admin.taps import Taps
from headwater.broker.broker import Broker
from headwater.config import Config
from headwater.protocols.base import Service
from headwater.server import wiring
from headwater.transport.tcp import Connections


@dataclass(frozen=True, slots=True)
class Office:
    observatory: Observatory
    taps: Taps
    desks: tuple[Any, ...]

    @classmethod
    def open(
        cls,
        config: Config,
        broker: Broker,
        connections: Connections,
        services: Mapping[str, Service],
        board: Board,
    ) -> "Office":
        taps = Taps(broker)
        clients = ConnectionDesk(connections)
        observatory = Observatory(connections.traffic, connections.sample)
        topics = TopicDesk(broker)
        queues = QueueDesk(Overview(broker, partial(wiring.queue_spec, services)))
        limits = config.limits
        messages = MessageDesk(broker, taps, limits.message_bytes, limits.topic_bytes)
        overview = OverviewDesk(
            broker,
            connections,
            observatory,
            topics,
            queues,
            taps,
            _retention(config),
            config.data,
            [counter for each in services.values() for counter in each.counters()],
        )
        observatory.start()
        desks = (clients, topics, queues, messages, overview, PipelineDesk(board))
        return cls(observatory, taps, desks)

    def close(self) -> None:
        self.observatory.stop()
        self.taps.stop()


def _retention(config: Config) -> dict[str, Any]:
    log = config.log
    return {
        "sync": log.sync,
        "segment_bytes": log.segment_bytes,
        "retention_bytes": log.retention_bytes,
        "retention_age_seconds": log.retention_age,
    }
