"""Users and rules, changed while the broker runs. It knows of a change at once, and records it."""

import asyncio
from collections.abc import Callable
from typing import Any

from headwater.admin.audit import ACCESS, AuditTrail, declared_as
from headwater.broker.broker import Broker
from headwater.control import Handler
from headwater.errors import DECLINED, Code
from headwater.identity.book import AccessBook
from headwater.identity.gatekeeper import Gatekeeper
from headwater.transport.tcp import Connections

#: Limits whose refusals are counted by their names.
LIMITS = (
    *("connections", "connections_per_address", "connections_per_user"),
    *("subscriptions", "patterns", "client_queues"),
    *("topics_per_user", "queues_per_user", "stored_bytes_per_user"),
)


class AccessHandlers:
    def __init__(
        self,
        book: AccessBook,
        gate: Gatekeeper,
        audit: AuditTrail,
        broker: Broker,
        connections: Connections,
    ) -> None:
        self._book = book
        self._broker = broker
        self._connections = connections
        self._gate = gate
        self._audit = audit

    def handlers(self) -> dict[str, Handler]:
        return {name: self._handler(name, act) for name, act in self._book.actions.items()}

    def figures(self) -> dict[str, Any]:
        """What was refused, for monitoring."""
        attempts = self._gate.attempts
        limits = self._broker.accounts.refused + self._connections.refused
        return {
            "failed": attempts.failures,
            "locked_out": attempts.refused,
            "limits": {name: limits[name] for name in LIMITS},
            "declined": {code.value: DECLINED[code] for code in Code},
        }

    def _handler(self, name: str, act: Callable[..., Any]) -> Handler:
        async def reading(**arguments: Any) -> Any:
            return await asyncio.to_thread(act, **arguments)

        async def changing(**arguments: Any) -> Any:
            done = await asyncio.to_thread(act, **arguments)
            self._gate.refresh()
            return done

        if name in self._book.READING:
            return declared_as(act, reading)
        return self._audit.recorded(ACCESS, name, declared_as(act, changing))
