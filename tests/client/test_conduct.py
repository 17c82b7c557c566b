"""How the clients speak, seen by a broker that takes the documents at their word."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from headwater.client import BpspClient, PsmbClient
from headwater.protocols.bpsp import codec as bpsp
from headwater.protocols.psmb import codec as psmb
from tests.e2e.process import PATIENCE

WELCOME = b"OK\0\0\0\0\0"
Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def broker(conversation: Conversation) -> AsyncIterator[int]:
    """The port of a broker that has this conversation with everyone; what goes wrong in it fails
    the test."""
    failures: list[Exception] = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await conversation(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # a client may leave
        except Exception as error:
            failures.append(error)
        finally:
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    async with asyncio.timeout(PATIENCE), server:
        yield int(server.sockets[0].getsockname()[1])
    assert not failures


def test_psmb_waits_for_each_state() -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for expected, answer in (
            (psmb.PsmbClientSession.hello(), WELCOME),
            (psmb.PsmbClientSession.publishing("t"), psmb.OK),
            (psmb.encode_messages([b"1"]) + psmb.NOP, psmb.NIL),
        ):
            assert await reader.read(1000) == expected  # and nothing of the next state with it
            writer.write(answer)

    async def check() -> None:
        async with broker(converse) as port, PsmbClient("127.0.0.1", port) as client:
            await client.publish("t", b"1")

    asyncio.run(check())


def test_bpsp_waits_for_info() -> None:
    info = bpsp.frame(bpsp.INFO, bpsp.format_headers((("x-server", "another"),)))
    said: list[bytes] = []

    class Broker(asyncio.Protocol):
        transport: asyncio.Transport

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport = transport
            self.greeting = asyncio.create_task(self.greet())

        async def greet(self) -> None:
            for index in range(len(info)):  # the client runs in the same loop: it could speak now
                self.transport.write(info[index : index + 1])
                await asyncio.sleep(0)
            said.append(info)

        def data_received(self, data: bytes) -> None:
            said.append(data)
            self.transport.write(bpsp.frame(bpsp.OK))

    async def check() -> None:
        server = await asyncio.get_running_loop().create_server(Broker, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(PATIENCE), server, BpspClient("127.0.0.1", port):
            assert said == [info, bpsp.frame(bpsp.CONNECT, flag=bpsp.ACK)]

    asyncio.run(check())


def test_psmb_takes_a_message_that_comes_between_ok_and_bye() -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(psmb.PsmbClientSession.hello()))
        writer.write(WELCOME)
        await reader.readuntil(b"t\0")
        writer.write(psmb.OK + psmb.encode_messages([b"the last one"]) + psmb.BYE)

    async def check() -> None:
        async with broker(converse) as port, PsmbClient("127.0.0.1", port) as client:
            await client.subscribe("t")
            assert (await anext(client)).payload == b"the last one"
            assert (await anext(client)).payload == b"the last one"  # it has come back

    asyncio.run(check())
