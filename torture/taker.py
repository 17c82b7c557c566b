"""A client that takes messages, and what it got."""

import asyncio

from headwater.client import PsmbClient
from headwater.client.base import Client
from headwater.client.link import Link
from torture.backlog import key_of


class Taker:
    def __init__(self, client: Client) -> None:
        self._client = client
        #: The keys of its messages, in order.
        self.got: list[bytes] = []
        self._taking: asyncio.Task[None] | None = None

    def go(self) -> None:
        """Take all that comes from now on."""
        for link in self._links():
            link.resume_reading()
        self._taking = asyncio.create_task(self._take())

    def lag(self) -> None:
        """Do not even read from the socket, until told to go."""
        for link in self._links():
            link.pause_reading()

    def keep(self, keys: set[bytes]) -> None:
        """Forget all but the last message of each of these keys: the others were taken back."""
        last = dict.fromkeys(key for key in reversed(self.got) if key in keys)
        self.got = list(reversed(last))

    async def stop(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.wait({self._taking})
        await self._client.close()

    async def _take(self) -> None:
        async for message in self._client:
            self.got.append(key_of(message.payload))

    def _links(self) -> list[Link]:
        client = self._client
        if isinstance(client, PsmbClient):
            return client._subscribed
        return [client._link]  # type: ignore[attr-defined]


async def subscribed(client: Client, pattern: str, identity: int | None = None) -> Taker:
    await client.open()
    if identity is None:
        await client.subscribe(pattern)
    else:
        await client.subscribe_as(identity, pattern)
    return Taker(client)
