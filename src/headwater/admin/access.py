"""Users and rules, changed while the broker runs. It knows of a change at once, and records it."""

import asyncio
from collections.abc import Callable
from typing import Any

from headwater.admin.audit import ACCESS, AuditTrail, declared_as
from headwater.control import Handler
from headwater.errors import DECLINED, OVER_LIMITS, Code
from headwater.identity.book import AccessBook
from headwater.identity.gatekeeper import Gatekeeper

#: Limits whose refusals are counted by their names.
LIMITS = (
    *("connections", "connections_per_address", "connections_per_user"),
    *("handshake_seconds", "unfinished_seconds", "message_bytes", "topic_bytes"),
    *("subscriptions", "patterns", "client_queues"),
    *("topics_per_user", "queues_per_user", "stored_bytes_per_user"),
    *("flight.connections", "flight.request_bytes", "flight.input_bytes"),
    *("flight.calls", "flight.staged_bytes", "flight.commit_bytes", "flight.record_batch_bytes"),
)


class AccessHandlers:
    def __init__(self, book: AccessBook, gate: Gatekeeper, audit: AuditTrail) -> None:
        self._book = book
        self._gate = gate
        self._audit = audit

    def handlers(self) -> dict[str, Handler]:
        return {name: self._handler(name, act) for name, act in self._book.actions.items()}

    def figures(self) -> dict[str, Any]:
        """What was refused, for monitoring."""
        return {
            "failed": self._gate.failures,
            "locked_out": self._gate.attempts.refused,
            "limits": {name: OVER_LIMITS[name] for name in LIMITS},
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
