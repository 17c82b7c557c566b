"""A proof is asked for behind messages, and never in one segment with them."""

import asyncio
from pathlib import Path

import pytest

from headwater.broker.broker import Broker
from headwater.broker.receipts import AwaitedReceipt
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.message import Run
from headwater.protocols.psmb import codec as psmb
from headwater.protocols.psmb import server
from headwater.protocols.psmb.server import PsmbService
from headwater.protocols.psmb.settings import PsmbSettings
from headwater.transport.tcp import Bounds, Connections, Listener


class Segments(asyncio.Protocol):
    """Notes what was read at once. It runs in the loop of the broker, which looks at sockets before
    timers: so it reads messages before the timer for the question is looked at."""

    def __init__(self) -> None:
        self.read: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self.read.append(data)


async def until(found: list[bytes], wanted: bytes) -> None:
    async with asyncio.timeout(60):
        while wanted not in found:
            await asyncio.sleep(0.005)


def test_messages_and_the_question_come_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than the system may take to pass on what was sent, on a machine with much to do.
    monkeypatch.setattr(server, "QUIET_SECONDS", 0.5)

    async def check() -> None:
        engine = await EmbeddedEngine.open(tmp_path, LogSettings())
        broker = Broker(engine)
        service = PsmbService(PsmbSettings(), {})
        connections = Connections(Bounds(), broker.join)
        listener = Listener("psmb", service.session, connections)
        host, port = await listener.bind("127.0.0.1", 0)
        await listener.serve()
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_connection(Segments, host, port)
        session = psmb.PsmbClientSession
        transport.write(session.hello() + session.subscribe("t", 1))
        async with asyncio.timeout(60):
            while not b"".join(client.read).endswith(b"OK\0"):
                await asyncio.sleep(0.005)
        client.read.clear()
        for number in range(2):
            payload = b"%d" % number
            broker.publish(Run("t", [payload], protocol="test"), AwaitedReceipt(), None)
            engine.hurry()
            await until(client.read, psmb.encode_messages([payload]))
            await until(client.read, b"NOP")  # alone
            client.read.clear()
            transport.write(b"NIL")
        transport.close()
        listener.stop()
        await connections.dismiss(1.0)
        broker.close()
        await engine.close()

    asyncio.run(check())
