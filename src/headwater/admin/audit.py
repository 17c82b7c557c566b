"""The audit trail: who logged in, failed to, changed access, redrove, deleted, exported.

    $audit/login     who came in, from where, and how
    $audit/failure   who could not
    $audit/access    changes of users, apps and rules
    $audit/queue     dead letters redriven or deleted, queues changed
    $audit/client    connections that an operator closed
    $audit/export    messages taken out in bulk: by a command, or over Flight

Each event is a JSON object in the log itself: in order with everything else, as durable as
everything else, and readable by those whom a rule allows it. Nobody but the broker can publish
there.
"""

import asyncio
import inspect
import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, get_type_hints

from headwater.actions import AUDIT
from headwater.broker.broker import Broker
from headwater.control import Handler
from headwater.errors import LogUnavailable
from headwater.identity.gatekeeper import GateEvent
from headwater.message import Run
from headwater.rights import LOCAL, Principal

logger = logging.getLogger(__name__)

PROTOCOL = "headwater"
# Of one kind, so many events are recorded in a second; of more, how many there were.
MOST_A_SECOND = 200
LOGIN, FAILURE, ACCESS = "login", "failure", "access"
QUEUE, CLIENT, EXPORT = "queue", "client", "export"
#: What is not, or must not be, on record.
_UNTOLD = frozenset(("password", "progress"))
#: Who may open the control socket, or has the broker's own token, if nobody else was named.
OWNER = "owner"


def declared_as(handler: Callable[..., Any], act: Handler, **further: type) -> Handler:
    """Let a handler declare what another one does, and further texts: requests are held to it."""
    signature = inspect.signature(handler)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default="") for name in further
    ]
    act.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *added]
    )
    act.__annotations__ = get_type_hints(handler) | further
    return act


class AuditTrail:
    """Used in the event loop."""

    def __init__(self, *, enabled: bool = True, logins: bool = True) -> None:
        self._broker: Broker | None = None
        self._enabled = enabled
        self._logins = logins
        self._waiting: dict[str, list[bytes]] = {}
        self._second = 0
        self._recorded: Counter[str] = Counter()  # in this second
        self._left_out: Counter[str] = Counter()

    def begin(self, broker: Broker) -> None:
        """Record in the log of this broker, from now on."""
        self._broker = broker

    def login(self, login: GateEvent) -> None:
        about = {"from": login.address, "how": login.how}
        if login.error:
            self.record(FAILURE, login.who, **about, why=login.error)
        elif self._logins:
            self.record(LOGIN, login.who, **about)

    def record(self, kind: str, who: str, /, **about: Any) -> None:
        if not self._enabled or not self._has_room(kind):
            return
        event = {"at": time.time_ns() // 1000, "who": who, **about}
        self._add(kind, event)

    def read(self, who: Principal, about: dict[str, Any]) -> None:
        """Somebody reads the log over Flight."""
        name = OWNER if who.kind == LOCAL else str(who)
        self.record(EXPORT, name, **{"do": "flight.read"} | about)

    def handlers(self) -> dict[str, Handler]:
        return {"log.exported": self._exported}

    async def _exported(self, first: int, end: int, topic: str = "") -> None:
        """Someone who may read the files has taken messages out of them."""

    def recorded(self, kind: str, name: str, handler: Handler) -> Handler:
        """The same handler, which may also be told `by` whom; what it does is on record."""

        async def act(by: str = "", **arguments: Any) -> Any:
            done = await handler(**arguments)
            told = {key: value for key, value in arguments.items() if key not in _UNTOLD}
            self.record(kind, by or OWNER, **{"do": name, "with": told})
            return done

        return declared_as(handler, act, by=str)

    def _has_room(self, kind: str) -> bool:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._recorded.clear()
            for each, count in self._left_out.items():
                self._add(each, {"at": second * 1_000_000, "who": "", "left_out": count})
            self._left_out.clear()
        self._recorded[kind] += 1
        if self._recorded[kind] > MOST_A_SECOND:
            self._left_out[kind] += 1
            return False
        return True

    def _add(self, kind: str, event: dict[str, Any]) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._publish)
        self._waiting.setdefault(kind, []).append(json.dumps(event).encode())

    def _publish(self) -> None:
        """What has happened in one turn is one run for each kind."""
        waiting, self._waiting = self._waiting, {}
        for kind, events in waiting.items():
            run = Run(f"{AUDIT}/{kind}", events, protocol=PROTOCOL, publisher=PROTOCOL)
            try:
                assert self._broker is not None
                self._broker.publish(run, None, None)
            except LogUnavailable as error:
                for event in events:
                    logger.error("not in the audit trail (%s): %s %s", error, kind, event.decode())
