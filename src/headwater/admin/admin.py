"""Puts the handlers together, with what they look at: rates, taps and the reports of pipelines."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from headwater.admin.access import AccessHandlers
from headwater.admin.apps import AppHandlers
from headwater.admin.audit import ACCESS, CLIENT, EXPORT, QUEUE, AuditTrail
from headwater.admin.connections import ConnectionHandlers
from headwater.admin.loop import LoopWatch
from headwater.admin.messages import MessageHandlers
from headwater.admin.overview import OverviewHandlers
from headwater.admin.pipelines import PipelineHandlers, PipelineReports
from headwater.admin.queues import QueueHandlers
from headwater.admin.rates import RateSampler
from headwater.admin.taps import Taps
from headwater.admin.topics import TopicHandlers
from headwater.broker.broker import Broker
from headwater.config import Config
from headwater.control import Handler
from headwater.protocols.base import ServiceCounter
from headwater.queue_spec import QueueSpec
from headwater.tls import Keyring
from headwater.transport.tcp import Connections

logger = logging.getLogger(__name__)

#: What goes into the audit trail, by kind, besides changes of users and rules.
RECORDED = {
    "app.add": ACCESS,
    "app.remove": ACCESS,
    "queue.redrive": QUEUE,
    "queue.purge": QUEUE,
    "connections.close": CLIENT,
    "messages.repeat": QUEUE,
    "log.exported": EXPORT,
}


class Admin:
    """All that an operator can ask of a running broker.

    `queue_spec` makes the specification of a queue that is known by name only, and `counters` are
    those that the protocols keep.
    """

    def __init__(
        self,
        *,
        config: Config,
        broker: Broker,
        connections: Connections,
        queue_spec: Callable[[str], QueueSpec | None],
        counters: Sequence[ServiceCounter],
        apps: AppHandlers,
        access: AccessHandlers,
        audit: AuditTrail,
        reports: PipelineReports,
        keyrings: Sequence[Keyring] = (),
    ) -> None:
        self._audit = audit
        self._taps = Taps(broker)
        self._sampler = RateSampler(connections.traffic, connections.sample)
        self._loop_watch = LoopWatch(broker, connections)
        topics = TopicHandlers(broker)
        self._queues = queues = QueueHandlers(broker, queue_spec, topics)
        self._looking: asyncio.Task[None] | None = None
        self._groups = (
            apps,
            access,
            audit,
            ConnectionHandlers(connections),
            topics,
            queues,
            MessageHandlers(
                broker=broker,
                taps=self._taps,
                message_bytes=config.limits.message_bytes,
                topic_bytes=config.limits.topic_bytes,
            ),
            OverviewHandlers(
                broker=broker,
                connections=connections,
                sampler=self._sampler,
                loop=self._loop_watch,
                topics=topics,
                queues=queues,
                taps=self._taps,
                retention=_retention(config),
                data=config.data,
                counters=counters,
                access=access.figures,
                keyrings=keyrings,
            ),
            PipelineHandlers(reports),
        )
        self._sampler.start()
        self._loop_watch.start()

    def handlers(self) -> dict[str, Handler]:
        """All commands, by name."""
        found = {name: each for group in self._groups for name, each in group.handlers().items()}
        for name, kind in RECORDED.items():
            found[name] = self._audit.recorded(kind, name, found[name])
        return found

    def look_over(self) -> None:
        """Say in the log, as soon as it is found out, what an operator may have got wrong."""
        self._looking = asyncio.get_running_loop().create_task(self._look_over())

    async def _look_over(self) -> None:
        try:
            await self._queues.check_bindings()
        except Exception:  # the broker does without
            logger.exception("the bindings of queues could not be looked at")

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self._sampler.stop()
        self._loop_watch.stop()
        self._taps.stop()


def _retention(config: Config) -> dict[str, Any]:
    log = config.log
    return {
        "sync": log.sync,
        "segment_bytes": log.segment_bytes,
        "retention_bytes": log.retention_bytes,
        "retention_age_seconds": log.retention_age,
    }
