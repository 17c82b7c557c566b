"""What the consumers of a queue have seen, and what the broker must therefore not do.

A message whose acknowledgement the broker has heard is not delivered again, unless the broker was
killed too soon after it. The answer to a ping that follows the acknowledgement proves that it was
heard.
"""

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field

from headwater.client import PrismClient
from headwater.errors import HeadwaterError

# What was heard is on disk after 100 ms; the rest is for a disk that others use as well.
SAFE_SECONDS = 0.1 + 2.9


@dataclass(frozen=True)
class Heard:
    """The broker has heard an acknowledgement at some moment between the two."""

    asked: float
    answered: float


@dataclass
class Accounts:
    """Of all consumers together."""

    received: Counter[bytes] = field(default_factory=Counter)
    #: Acknowledged, and maybe heard.
    done: set[bytes] = field(default_factory=set)
    heard: dict[bytes, Heard] = field(default_factory=dict)
    kills: list[tuple[float, float]] = field(default_factory=list)
    #: Delivered again although the broker had heard of them.
    wrong: list[bytes] = field(default_factory=list)

    def receive(self, key: bytes) -> None:
        self.received[key] += 1
        heard = self.heard.get(key)
        if heard is not None and not self._may_be_lost(heard):
            self.wrong.append(key)

    def _may_be_lost(self, heard: Heard) -> bool:
        return any(
            heard.asked <= after and before <= heard.answered + SAFE_SECONDS
            for before, after in self.kills
        )

    async def ping(self, client: PrismClient, done: list[bytes]) -> None:
        """`done` was acknowledged just now. Is the answer lost, nobody knows what has become of
        it."""
        now = asyncio.get_running_loop().time
        asked = now()
        with contextlib.suppress(HeadwaterError):
            await client._link.ask(client._codec.ping())
            heard = Heard(asked, now())
            self.heard.update((key, heard) for key in done)


def came_from(client: PrismClient) -> object:
    """The connection that the last message came from."""
    (session,) = client._acknowledge.args  # type: ignore[attr-defined]
    return session


def is_up(client: PrismClient) -> bool:
    """Is the connection that the last message came from still the one that is open?"""
    return client._link._transport is not None and client._link._session is came_from(client)
