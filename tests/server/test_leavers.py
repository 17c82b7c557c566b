"""What a connection has had is given back when it ends, whatever its client has done. Nobody looks
for cycles while a broker is busy (`server/garbage.py`), so what is part of one stays for a day."""

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from headwater.broker.peer import Peer
from headwater.broker.queues.consumer import Consumer
from headwater.broker.router import OwnedSubscription
from headwater.broker.subscriber import Subscriber
from headwater.client import Client, PrismClient, connect
from headwater.config import load
from headwater.protocols.base import Session
from headwater.registry import REGISTRY
from headwater.server.loop import loop_factory
from headwater.server.server import Server
from headwater.transport.connection import Connection
from headwater.transport.outgoing import Outgoing
from tests.e2e.process import ALL_FIVE, APP, PATIENCE, SECRET

#: What a broker has for a connection.
KINDS = (Connection, Session, Peer, Subscriber, Consumer, OwnedSubscription, Outgoing)
ROUNDS = 3
TOPIC = "bmtp/42"  # a name that all of them have
SECRETS = {"prism": f"{APP}:{quote(SECRET)}@", "crystal": f"{quote(SECRET)}@"}

Act = Callable[[Client, str], Awaitable[None]]


def census() -> Counter[str]:
    """How many there are, by name: nothing is collected before they are counted."""
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, KINDS))


async def publishes(client: Client, topic: str) -> None:
    await client.publish(topic, b"1", b"2")


async def subscribes(client: Client, topic: str) -> None:
    await client.subscribe("" if isinstance(client, PrismClient) else topic)
    await client.publish(topic, b"1")
    async with asyncio.timeout(PATIENCE):
        assert (await anext(client)).payload == b"1"


async def leaves_with_much_on_its_way(client: Client, topic: str) -> None:
    await client.subscribe("" if isinstance(client, PrismClient) else topic)
    await client.publish(topic, *[b"x" * 1000] * 1000)
    async with asyncio.timeout(PATIENCE):
        await anext(client)


def with_a_broker(directory: Path, check: Callable[[Server], Awaitable[None]]) -> None:
    names = (*REGISTRY, "any")
    listening = "".join(f'{name} = "127.0.0.1:0"\n' for name in names)
    file = directory / "headwater.toml"
    file.write_text(
        f'data = "{directory}/data"\n[listen]\n{listening}'
        f'flight = "off"\nconsole = "off"\n{ALL_FIVE}'
    )

    async def all_of_it() -> None:
        server = await Server.start(load(file, {}, {}).config)
        try:
            await check(server)
        finally:
            await server.stop()

    with asyncio.Runner(loop_factory=loop_factory("auto")) as runner:
        runner.run(all_of_it())


async def until_all_have_left(server: Server) -> None:
    async with asyncio.timeout(PATIENCE):
        while server.connections.open or server.broker.chores.busy or server.broker.busy:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("act", [publishes, subscribes, leaves_with_much_on_its_way])
@pytest.mark.parametrize("listener", ["own", "any"])
@pytest.mark.parametrize("protocol", list(REGISTRY))
def test_nothing_is_left_of_who_has_left(
    tmp_path: Path, protocol: str, listener: str, act: Act
) -> None:
    async def check(server: Server) -> None:
        ports = {name: port for name, _, port in server.addresses}
        port = ports[protocol if listener == "own" else "any"]
        before: Counter[str] = Counter()
        for number in range(ROUNDS + 1):
            async with connect(f"{protocol}://{SECRETS.get(protocol, '')}127.0.0.1:{port}") as one:
                await act(one, TOPIC)
                assert server.connections.open
            del one
            await until_all_have_left(server)
            if not number:  # what the first one made may be for all
                before = census()
                continue
        assert census() - before == Counter()

    gc.collect()
    gc.disable()
    try:
        with_a_broker(tmp_path, check)
    finally:
        gc.enable()
