"""Users and rules, changed while the broker runs. It knows of a change at once, and records it."""

import asyncio
from collections.abc import Callable
from functools import wraps
from typing import Any

from headwater.admin.audit import ACCESS, OWNER, AuditTrail
from headwater.control import Handler
from headwater.identity.book import AccessBook
from headwater.identity.gatekeeper import Gatekeeper

#: What must not be on record.
_SECRET = frozenset(("password",))


class AccessHandlers:
    def __init__(self, book: AccessBook, gate: Gatekeeper, audit: AuditTrail) -> None:
        self._book = book
        self._gate = gate
        self._audit = audit

    def handlers(self) -> dict[str, Handler]:
        return {name: self._handler(name, act) for name, act in self._book.actions.items()}

    def _handler(self, name: str, act: Callable[..., Any]) -> Handler:
        @wraps(act)
        async def reading(**arguments: Any) -> Any:
            return await asyncio.to_thread(act, **arguments)

        async def changing(by: str = "", **arguments: Any) -> Any:
            done = await asyncio.to_thread(act, **arguments)
            self._gate.refresh()
            told = {key: value for key, value in arguments.items() if key not in _SECRET}
            self._audit.record(ACCESS, by or OWNER, **{"do": name, "with": told})
            return done

        return reading if name in self._book.READING else changing
