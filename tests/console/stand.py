"""A real broker with its console, and a client for it."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import httpx

from headwater.client import BpspClient
from headwater.control import call
from tests.e2e.process import ALL_FIVE, PATIENCE, BrokerProcess, eventually

MARK = {"X-Headwater": "1"}


def console_of(data: Path, toml: str = ALL_FIVE, **settings: str) -> BrokerProcess:
    settings.setdefault("HEADWATER_LISTEN_CONSOLE", "127.0.0.1:0")
    settings.setdefault("HEADWATER_AUDIT_EVENTS", "changes")  # it has a page
    return BrokerProcess(data, toml=toml, **settings)


def client_of(broker: BrokerProcess, token: str | None = None) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    base = f"http://127.0.0.1:{broker.ports['console']}"
    return httpx.Client(base_url=base, headers=headers, timeout=PATIENCE, trust_env=False)


def publish(broker: BrokerProcess, topic: str, *payloads: bytes, **headers: str) -> None:
    async def main() -> None:
        async with BpspClient("127.0.0.1", broker.ports["bpsp"], user="bob") as publisher:
            await publisher.publish(topic, *payloads, headers=tuple(headers.items()))

    asyncio.run(main())


class Events:
    """Reads a stream of server-sent events in a thread."""

    def __init__(self, client: httpx.Client, path: str) -> None:
        self.got: list[tuple[str, Any]] = []
        self.status = 0
        self._connection = HTTPConnection(client.base_url.host, client.base_url.port)
        self._connection.request("GET", path, headers=_credentials(client))
        self._socket = self._connection.sock
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with (
            suppress(OSError, HTTPException, ValueError),
            self._connection.getresponse() as response,
        ):
            self.status, name = response.status, ""
            for line in response:
                kind, _, value = line.decode().strip().partition(": ")
                if kind == "event":
                    name = value
                elif kind == "data":
                    self.got.append((name, json.loads(value)))

    def wait(self, enough: Any, seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if enough(self.got):
                return
            time.sleep(0.02)
        raise AssertionError(f"it did not come: {self.status} {self.got[-3:]}")

    def wait_for_the_end(self, seconds: float = PATIENCE) -> None:
        """Until the console has closed it."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "it is still open"

    @property
    def is_open(self) -> bool:
        return self._thread.is_alive()

    def rows(self) -> list[dict[str, Any]]:
        return [row for name, data in self.got if name == "rows" for row in data["items"]]

    def sum(self, member: str) -> int:
        return sum(data[member] for name, data in self.got if name == "rows")

    def stop(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)
        self._connection.close()
        self._socket.close()


def _credentials(client: httpx.Client) -> dict[str, str]:
    """What a client is known by: its token, or the cookie of its session."""
    cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    given = {"Authorization": client.headers.get("authorization"), "Cookie": cookies}
    return {name: value for name, value in given.items() if value}


@contextmanager
def events(client: httpx.Client, path: str) -> Iterator[Events]:
    stream = Events(client, path)
    try:
        yield stream
    finally:
        stream.stop()


@contextmanager
def tail(broker: BrokerProcess, client: httpx.Client, path: str) -> Iterator[Events]:
    """A stream of messages, from the moment on when the broker looks for them."""
    _until_taps(broker, 0)  # those of earlier tests are closed a moment later
    with events(client, path) as stream:
        _until_taps(broker, 1)
        yield stream


def _until_taps(broker: BrokerProcess, count: int) -> None:
    for _ in eventually():
        if call(broker.data, "metrics")["taps"] == count:
            return
