"""Who is connected and what they take messages from; and how to end a connection."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headwater.admin.loop import slowed_for
from headwater.admin.paging import ListPage, PageBuilder, PageRequest, select
from headwater.broker.interests import Interest
from headwater.broker.peer import Peer
from headwater.control import Handler
from headwater.errors import Code, Refusal
from headwater.transport.connection import Connection
from headwater.transport.tcp import Connections

NEWEST_FIRST = "-since"


@dataclass(frozen=True, slots=True)
class HeldSubscription:
    """A subscription and whose it is."""

    connection: Connection
    number: int
    interest: Interest


def _peer(connection: Connection) -> Peer:
    assert isinstance(connection.peer, Peer)
    return connection.peer


CONNECTION_KEYS: Mapping[str, Callable[[Connection], Any]] = {
    "since": lambda each: each.since,
    "address": lambda each: each.address,
    "protocol": lambda each: each.session.protocol,
    "client": lambda each: each.session.user_agent,
    "name": lambda each: _peer(each).name,
    "subscriptions": lambda each: _peer(each).subscriptions,
    "lag": lambda each: _peer(each).lag,
    "in": lambda each: each.meter.bytes_in,
    "out": lambda each: each.meter.bytes_out,
    "in_rate": lambda each: each.meter.rate_in,
    "out_rate": lambda each: each.meter.rate_out,
    "share": lambda each: each.meter.share,
    "slowed": lambda each: (each.slowed.share, each.slowed.seconds),
}

SUBSCRIPTION_KEYS: Mapping[str, Callable[[HeldSubscription], Any]] = {
    "connection": lambda held: held.connection.id,
    "protocol": lambda held: held.connection.session.protocol,
    "client": lambda held: _client(held.connection),
    "key": lambda held: held.interest.key,
    "filter": lambda held: held.interest.filter,
    "durable": lambda held: held.interest.durable or "",
    "position": lambda held: held.interest.position,
    "lag": lambda held: held.interest.lag,
}


class ConnectionHandlers:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def handlers(self) -> dict[str, Handler]:
        return {
            "connections.list": self.page,
            "connections.show": self.show,
            "connections.close": self.close,
            "subscriptions.list": self.subscriptions,
        }

    async def page(
        self, limit: int = 50, sort: str = "", cursor: str | None = None, q: str = ""
    ) -> dict[str, Any]:
        asked = PageRequest.read(limit, sort, cursor, q)
        if asked.sort in ("", NEWEST_FIRST) and not asked.q and asked.cursor is None:
            return self._newest(asked).as_dict(_connection)
        builder = PageBuilder(asked, CONNECTION_KEYS, NEWEST_FIRST, lambda each: each.id)
        found = (each for each in self._admitted() if _matches(each, asked.q.lower()))
        return (await select(builder, found)).as_dict(_connection)

    def _newest(self, asked: PageRequest) -> ListPage[Connection]:
        """The usual page, which needs no look at all the others."""
        known = self._connections.open
        newest = list(islice(reversed(known.values()), asked.limit))
        builder = PageBuilder(asked, CONNECTION_KEYS, NEWEST_FIRST, lambda each: each.id)
        builder.add(newest)
        page = builder.page()
        if len(known) > len(newest):
            builder.add(islice(reversed(known.values()), asked.limit, asked.limit + 1))
            page = builder.page()
        return ListPage(page.items, len(known), page.next)

    async def show(self, id: int) -> dict[str, Any]:
        return _connection(self._find(id))

    async def close(self, id: int) -> None:
        self._find(id).dismiss(Refusal(Code.UNAVAILABLE, "an operator closed the connection"))

    def _find(self, id: int) -> Connection:
        connection = self._connections.open.get(id)
        if connection is None:
            raise Refusal(Code.NOT_FOUND, f"there is no connection {id}, or not any more")
        return connection

    async def subscriptions(
        self, limit: int = 50, sort: str = "", cursor: str | None = None, q: str = ""
    ) -> dict[str, Any]:
        asked = PageRequest.read(limit, sort, cursor, q)
        builder = PageBuilder(
            asked,
            SUBSCRIPTION_KEYS,
            "connection",
            lambda held: (held.connection.id, held.number),
        )
        text = asked.q.lower()
        found = (held for held in self._held() if _holds(held, text))
        return (await select(builder, found)).as_dict(_subscription)

    def _admitted(self) -> Iterator[Connection]:
        return iter(list(self._connections.open.values()))

    def _held(self) -> Iterator[HeldSubscription]:
        for connection in self._admitted():
            for number, interest in enumerate(_peer(connection).interests()):
                yield HeldSubscription(connection, number, interest)


def _matches(connection: Connection, text: str) -> bool:
    if not text:
        return True
    session = connection.session
    texts = (connection.address, session.protocol, session.user_agent, _peer(connection).name)
    return any(text in each.lower() for each in texts)


def _holds(held: HeldSubscription, text: str) -> bool:
    if not text:
        return True
    interest = held.interest
    texts = (interest.filter, interest.key, interest.durable or "")
    return any(text in each.lower() for each in texts) or _matches(held.connection, text)


def _client(connection: Connection) -> str:
    return _peer(connection).name or connection.session.user_agent or connection.address


def _connection(connection: Connection) -> dict[str, Any]:
    meter, peer = connection.meter, _peer(connection)
    lag = peer.lag
    return {
        "id": connection.id,
        "protocol": connection.session.protocol,
        "address": connection.address,
        "client": connection.session.user_agent,
        "name": peer.name,
        "since": connection.since,
        "subscriptions": peer.subscriptions,
        "in": {
            "messages": meter.messages_in,
            "bytes": meter.bytes_in,
            "bytes_per_second": round(meter.rate_in, 1),
        },
        "out": {
            "messages": meter.messages_out,
            "bytes": meter.bytes_out,
            "bytes_per_second": round(meter.rate_out, 1),
        },
        "lag": lag,
        "behind": lag > 0,
        "paused": connection.paused,
        "share": round(meter.share, 4),
        "loop_seconds": round(meter.seconds, 6),
        "slowed": list(slowed_for(connection.slowed)),
        "secure": connection.secure,
    }


def _subscription(held: HeldSubscription) -> dict[str, Any]:
    interest = held.interest
    return {
        "connection": held.connection.id,
        "protocol": held.connection.session.protocol,
        "client": _client(held.connection),
        "key": interest.key,
        "filter": interest.filter,
        "durable": interest.durable,
        "position": interest.position,
        "lag": interest.lag,
    }
