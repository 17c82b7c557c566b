"""TLS as clients see it: who is let in, with which certificate, and for how long one may take."""

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from headwater.protocols.psmb import codec as psmb
from tests.e2e.certificates import Authority, Signed
from tests.e2e.process import PATIENCE, BrokerProcess, eventually

SECURE = "tls://127.0.0.1:0"
#: Connections that a broker takes, and those beyond that it may tell why they are turned away.
LIMIT, BEYOND = 20, 256
#: The beginning of a ClientHello whose rest does not come.
HALF_A_HELLO = bytes.fromhex("16030100f8010000f40303")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def secure_broker(data: Path, pair: Signed, **settings: str) -> BrokerProcess:
    return BrokerProcess(
        data,
        HEADWATER_TLS_CERTIFICATE=str(pair.certificate),
        HEADWATER_TLS_KEY=str(pair.key),
        HEADWATER_LISTEN_PSMB=SECURE,
        **settings,
    )


def sockets_of(broker: BrokerProcess) -> int:
    found = 0
    for each in Path(f"/proc/{broker.pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed meanwhile
            found += os.readlink(each).startswith("socket:")
    return found


@contextlib.contextmanager
def secured(port: int, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as wire,
    ):
        yield wire


def until_closed(wire: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError):
        while data := wire.recv(1024):
            received += data
    return received


def greet(wire: ssl.SSLSocket) -> None:
    wire.sendall(psmb.PsmbClientSession.hello(2))
    assert wire.recv(7).startswith(b"OK")


@pytest.mark.both_loops
def test_handshakes_count_and_have_to_end(loop: str, authority: Authority, tmp_path: Path) -> None:
    with secure_broker(
        tmp_path / "data",
        authority.server(),
        HEADWATER_LOOP=loop,
        HEADWATER_LIMITS_CONNECTIONS=str(LIMIT),
        HEADWATER_LIMITS_HANDSHAKE_SECONDS="2",
    ) as broker:
        port, before = broker.ports["psmb"], sockets_of(broker)
        with ExitStack() as held:
            halves = []
            for _ in range(LIMIT + BEYOND + 100):
                half = held.enter_context(closing(socket.create_connection(("127.0.0.1", port))))
                half.settimeout(PATIENCE / 3)  # the event loop itself would give them a minute
                half.sendall(HALF_A_HELLO)
                halves.append(half)
            until_closed(halves[-1])  # there were too many already
            assert before + LIMIT <= sockets_of(broker) <= before + LIMIT + BEYOND
            for half in halves:
                until_closed(half)
            for _ in eventually():
                if sockets_of(broker) <= before:
                    break
        with secured(port, authority.context()) as wire:
            greet(wire)
