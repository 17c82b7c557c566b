"""A broker for the demo: its configuration, and the process."""

import asyncio
import os
import random
import secrets
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headwater.config import Config
from headwater.declare import value_of
from headwater.demo.clients import Access, parts
from headwater.errors import HeadwaterError
from headwater.registry import REGISTRY

HOST = "127.0.0.1"
LISTENERS = (*REGISTRY, "console", "flight")
CONFIG_FILE = "headwater.toml"
LOG_FILE = "broker.log"
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0

_CONFIG = """\
data = "data"

[listen]
{listeners}
"""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the broker will listen; `moved` are those that are not the usual ones."""

    by_name: dict[str, int]
    moved: dict[str, int]


def choose_ports() -> Ports:
    """The usual ports, and others for those that are taken."""
    listen = Config().listen
    usual = {name: value_of(listen, name).port for name in LISTENERS}
    taken = [name for name, port in usual.items() if not _is_free(port)]
    moved = dict(zip(taken, _free_ports(), strict=False))
    return Ports(usual | moved, moved)


def free_ports() -> Ports:
    """None of the usual ones: for a demo beside another broker."""
    chosen = dict(zip(LISTENERS, _free_ports(), strict=False))
    return Ports(chosen, chosen)


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            trial.bind((HOST, port))
            return True
    return False


def _free_ports() -> Iterator[int]:
    """Each another one, and none of the usual ones. Nor those from 32768 on: the system gives them
    to whoever wants any port, and might do so before the broker listens there."""
    return filter(_is_free, random.sample(range(20_000, 29_000), 1000))


def write_config(directory: Path, ports: Ports) -> Access:
    """Write the broker's configuration, with new secrets; returns how clients get in."""
    access = Access(ports.by_name, secrets.token_hex(16))
    listeners = "\n".join(f'{name} = "{HOST}:{port}"' for name, port in ports.by_name.items())
    text = _CONFIG.format(listeners=listeners) + "".join(part.toml(access) for part in parts())
    file = directory / CONFIG_FILE
    file.touch(mode=0o600)  # before there are secrets in it
    file.write_text(text)
    return access


class Child:
    """A process of the demo, with what it says in a file."""

    def __init__(self, directory: Path, log: str) -> None:
        self._directory = directory
        self.log = directory / log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *command: str) -> None:
        """Start `headwater COMMAND…`, with the configuration of the demo."""
        environment = os.environ | {"HEADWATER_CONFIG": str(self._directory / CONFIG_FILE)}
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "headwater",
                *command,
                cwd=self._directory,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for the demo, which then stops all others in their order.
                start_new_session=True,
            )

    @property
    def ended(self) -> bool:
        return self._process is not None and self._process.returncode is not None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def wait(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        """Nothing of it is left afterwards, nor of what it has started."""
        if self._process is None:
            return
        try:
            with suppress(ProcessLookupError):
                self._process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._process.wait()
        finally:  # also if someone presses Ctrl-C once more
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


async def start_broker(directory: Path) -> Child:
    """A broker that is ready."""
    child = Child(directory, LOG_FILE)
    try:
        await child.start("serve")
        async with asyncio.timeout(_START_SECONDS):
            await _until_ready(child)
    except TimeoutError:
        await child.stop()
        raise HeadwaterError(
            f"the broker was not ready after {_START_SECONDS:.0f} s (see {child.log})"
        ) from None
    except BaseException:  # Ctrl-C too: it must not stay behind
        await child.stop()
        raise
    return child


async def _until_ready(broker: Child) -> None:
    while "ready" not in broker.log.read_text(errors="replace").split():
        if broker.ended:
            raise HeadwaterError(f"the broker did not start: {broker.last_words()}")
        await asyncio.sleep(0.05)
