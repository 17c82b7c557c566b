"""Clients of queues, of a broker in a process of its own; and how they end."""

import asyncio
from typing import TypeVar

from headwater.client import BmtpClient, PrismClient
from headwater.protocols.prism.asyncio_client import PREFETCH
from tests.e2e.process import APP, SECRET, BrokerProcess

Consumer = TypeVar("Consumer", bound=PrismClient | BmtpClient)


def prism(broker: BrokerProcess, prefetch: int = PREFETCH) -> PrismClient:
    port = broker.ports["prism"]
    return PrismClient("127.0.0.1", port, app=APP, secret=SECRET, prefetch=prefetch)


def bmtp(broker: BrokerProcess, qos: int = 1) -> BmtpClient:
    return BmtpClient("127.0.0.1", broker.ports["bmtp"], qos=qos)


def holds_back(client: Consumer) -> Consumer:
    """It acknowledges nothing. Others do so as soon as they have to wait for the next message."""
    client._flush = lambda: None  # type: ignore[method-assign]
    return client


async def drop(client: PrismClient | BmtpClient) -> None:
    """As a process that dies: nothing is acknowledged or said any more."""
    transport = client._link._transport
    assert transport is not None
    client._link._closed = True
    transport.abort()
    await asyncio.sleep(0)
