"""The console's way to the broker: many questions, and some that take long."""

import asyncio
from pathlib import Path

from headwater.console.control_link import MOST_LINKS, ControlLink
from headwater.control import protocol
from headwater.control.server import Control


def test_long_operations_keep_nobody_from_asking(tmp_path: Path) -> None:
    async def check() -> None:
        going, enough = asyncio.Semaphore(0), asyncio.Event()

        async def redrive(name: str) -> str:
            going.release()
            await enough.wait()
            return name

        async def show() -> str:
            return "here"

        control = Control({"queue.redrive": redrive, "log.show": show})
        await control.start(tmp_path)
        link = ControlLink(tmp_path)
        try:
            names = [str(number) for number in range(MOST_LINKS + 2)]
            long = [
                asyncio.ensure_future(link.ask("queue.redrive", timeout=None, name=name))
                for name in names
            ]
            for _ in names:
                await going.acquire()
            assert await link.ask("log.show") == "here"
            enough.set()
            assert await asyncio.gather(*long) == names
        finally:
            link.close()
            await control.stop()

    asyncio.run(check())


def test_a_connection_that_the_broker_has_ended_is_not_used_again(tmp_path: Path) -> None:
    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\n")
        writer.write(b'{"result": "here"}\n')
        writer.close()

    async def check() -> None:
        with protocol.address(tmp_path) as path:
            server = await asyncio.start_unix_server(answer_once, path)
        link = ControlLink(tmp_path)
        try:
            for _ in range(3):
                assert await link.ask("log.show") == "here"
                while any(idle.is_open for idle in link._idle):
                    await asyncio.sleep(0)
        finally:
            link.close()
            server.close()

    asyncio.run(check())
