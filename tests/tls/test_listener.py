"""A listener with TLS, on both event loops: whom it lets in, what it counts, what it says."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headwater.protocols.bpsp import codec as bpsp
from headwater.server.loop import loop_factory
from headwater.tls import Keyring, TlsFiles
from headwater.transport.connection import Connection
from headwater.transport.tcp import Bounds, Connections, Listener
from tests.tls.certificates import Authority
from tests.transport.peer import IdlePeer

PATIENCE = 60
CONNECT = bpsp.frame(bpsp.CONNECT)

pytestmark = pytest.mark.parametrize("loop", ["uvloop", "asyncio"])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


class Stand:
    def __init__(self, keyring: Keyring, bounds: Bounds) -> None:
        self.connections = Connections(bounds, self._join)
        self.listener = Listener("bpsp", bpsp.BpspSession, self.connections, keyring)
        self.joined: list[Connection] = []
        self.port = 0

    def _join(self, connection: Connection, rights: object) -> Any:
        self.joined.append(connection)
        return IdlePeer()

    @asynccontextmanager
    async def client(
        self, context: ssl.SSLContext
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self.port, ssl=context, server_hostname="localhost"
            )
            try:
                yield reader, writer
            finally:
                writer.transport.abort()

    async def raw(self, first: bytes = b"") -> socket.socket:
        """A connection that speaks no TLS."""
        made = socket.create_connection(("127.0.0.1", self.port))
        made.setblocking(False)
        made.send(first)
        return made


def run(
    loop: str,
    files: TlsFiles,
    check: Callable[[Stand], Awaitable[None]],
    bounds: Bounds | None = None,
) -> None:
    async def main() -> None:
        stand = Stand(Keyring("bpsp", files), bounds or Bounds())
        _, stand.port = await stand.listener.bind("127.0.0.1", 0)
        await stand.listener.serve()
        try:
            await check(stand)
        finally:
            stand.listener.stop()
            await stand.connections.dismiss(1.0)

    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        runner.run(main())


def files_of(authority: Authority, **more: Any) -> TlsFiles:
    pair = authority.server()
    return TlsFiles(certificate=pair.certificate, key=pair.key, **more)


async def until(state: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not state():
            await asyncio.sleep(0.001)


async def rest(wire: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    received, loop = b"", asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE):
        with contextlib.suppress(ConnectionError):
            while data := await loop.sock_recv(wire, 1024):
                received += data
    wire.close()
    return received


def test_who_shows_a_certificate_is_known_by_name(loop: str, authority: Authority) -> None:
    files = files_of(authority, client_ca=authority.certificate)

    async def check(stand: Stand) -> None:
        for name, context in (
            ("ann", authority.context(authority.client("ann"))),
            ("", authority.context()),
        ):
            async with stand.client(context) as (reader, _):
                await reader.readexactly(1)
                assert stand.joined[-1].certified == name
                assert stand.joined[-1].secure

    run(loop, files, check)


def test_who_shows_none_is_told_that_one_is_required(loop: str, authority: Authority) -> None:
    files = files_of(authority, client_ca=authority.certificate, required=True)

    async def check(stand: Stand) -> None:
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            async with stand.client(authority.context()) as (reader, _):
                await reader.readexactly(1)
        await until(lambda: not stand.connections.handshakes)
        assert not stand.joined
        async with stand.client(authority.context(authority.client("bob"))) as (reader, _):
            await reader.readexactly(1)
            assert stand.joined[-1].certified == "bob"

    run(loop, files, check)


def test_certificates_of_others_are_refused(
    loop: str, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Authority(tmp_path_factory.mktemp("other"), "other")
    stranger = authority.context(other.client("ann"))

    async def check(stand: Stand) -> None:
        with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
            async with stand.client(stranger) as (reader, _):
                await reader.readexactly(1)

    run(loop, files_of(authority, client_ca=authority.certificate), check)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_versions_are_refused(loop: str, authority: Authority) -> None:
    old = authority.context()
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")

    async def check(stand: Stand) -> None:
        with pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
            async with stand.client(old):
                pass

    run(loop, files_of(authority), check)


def test_what_comes_with_the_end_of_the_handshake_is_not_lost(
    loop: str, authority: Authority
) -> None:
    """The client's last flight and its first words are one packet; the first flight was there
    before anyone was accepted."""

    async def check(stand: Stand) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = authority.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        wire, events = await stand.raw(outgoing.read()), asyncio.get_running_loop()
        while True:
            incoming.write(await events.sock_recv(wire, 1 << 16))
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                continue
        client.write(CONNECT)
        await events.sock_sendall(wire, outgoing.read())
        await until(lambda: bool(stand.joined) and stand.joined[0].session.established)
        assert stand.joined[0].meter.bytes_in == len(CONNECT)
        wire.close()

    run(loop, files_of(authority), check)


def test_beyond_the_limit_clients_are_told_in_their_protocol(
    loop: str, authority: Authority
) -> None:
    async def check(stand: Stand) -> None:
        context = authority.context()
        async with stand.client(context) as (first, _):
            await first.readexactly(1)
            half = await stand.raw()  # takes the only place of those who may be told
            await until(lambda: stand.connections.handshakes == 1)
            with pytest.raises(ssl.SSLError, match="ALERT_INTERNAL_ERROR"):
                async with stand.client(context):
                    pass
            half.close()
            await until(lambda: stand.connections.handshakes == 0)
            async with stand.client(context) as (second, _):
                assert b"at its limit of connections" in await second.read()
        await until(lambda: not stand.connections.open)
        async with stand.client(context) as (again, _):
            await again.readexactly(1)

    run(loop, files_of(authority), check, Bounds(connections=1, turned_away=1))


def test_a_place_that_was_free_at_the_beginning_is_kept(loop: str, authority: Authority) -> None:
    """Whoever comes while a handshake takes its time does not take its place."""

    async def check(stand: Stand) -> None:
        context = authority.context()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        wire = await stand.raw()
        await until(lambda: stand.connections.handshakes == 1)
        async with stand.client(context) as (late, _):
            assert b"at its limit of connections" in await late.read()
        events = asyncio.get_running_loop()
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                await events.sock_sendall(wire, outgoing.read())
                incoming.write(await events.sock_recv(wire, 1 << 16))
        await events.sock_sendall(wire, outgoing.read())
        await until(lambda: len(stand.connections.open) == 1)
        wire.close()

    run(loop, files_of(authority), check, Bounds(connections=1))


def test_a_handshake_that_does_not_end_is_cut_off(loop: str, authority: Authority) -> None:
    async def check(stand: Stand) -> None:
        silent, half = await stand.raw(), await stand.raw(b"\x16\x03\x01\x01")
        await until(lambda: stand.connections.handshakes == 2)
        assert await rest(silent) == await rest(half) == b""
        await until(lambda: stand.connections.handshakes == 0)

    run(loop, files_of(authority), check, Bounds(handshake_seconds=0.2))


@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\n\r\n", CONNECT + bytes(20)])
def test_plain_clients_are_closed_at_once(
    loop: str, authority: Authority, words: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(stand: Stand) -> None:
        with caplog.at_level(logging.DEBUG, "headwater.tls"):
            await rest(await stand.raw(words))
            await until(lambda: "the client does not speak TLS" in caplog.text)

    run(loop, files_of(authority), check, Bounds(handshake_seconds=3600))


def test_handshakes_end_with_the_listener(loop: str, authority: Authority) -> None:
    async def check(stand: Stand) -> None:
        half = await stand.raw(b"\x16\x03\x01\x01")
        await until(lambda: stand.connections.handshakes == 1)
        stand.listener.stop()
        await rest(half)
        assert stand.connections.handshakes == 0

    run(loop, files_of(authority), check)
