"""How the clients speak, seen by a broker that takes the documents at their word."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from headwater.client import PsmbClient
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


def test_psmb_takes_a_message_that_comes_between_ok_and_bye() -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello, mode = psmb.PsmbClientSession.hello(), psmb.PsmbClientSession.subscribe("t")
        writer.write(WELCOME)
        assert await reader.readexactly(len(hello) + len(mode)) == hello + mode
        writer.write(psmb.OK + psmb.encode_messages([b"the last one"]) + psmb.BYE)

    async def check() -> None:
        async with broker(converse) as port, PsmbClient("127.0.0.1", port) as client:
            await client.subscribe("t")
            assert (await anext(client)).payload == b"the last one"
            assert (await anext(client)).payload == b"the last one"  # it has come back

    asyncio.run(check())
