"""TLS as clients see it: who is let in, with which certificate, and for how long one may take."""

import contextlib
import os
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

from headwater.identity.book import AccessBook
from headwater.identity.users import FILE as USERS_FILE
from headwater.identity.users import Users
from headwater.protocols.bmtp import wire as bmtp
from headwater.protocols.bmtp.codec import BmtpClientSession
from headwater.protocols.psmb import codec as psmb
from tests.e2e.process import ALL_FIVE, PATIENCE, BrokerProcess, eventually
from tests.tls.certificates import Authority, Signed

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
            assert broker.refusals("connections") >= 100
            for half in halves:
                until_closed(half)
            assert broker.refusals("handshake_seconds") >= LIMIT
            for _ in eventually():
                if sockets_of(broker) <= before:
                    break
        with secured(port, authority.context()) as wire:
            greet(wire)


def shown(port: int, context: ssl.SSLContext) -> bytes | None:
    """The certificate that a new connection sees."""
    with secured(port, context) as wire:
        return wire.getpeercert(binary_form=True)


@pytest.mark.both_loops
def test_new_connections_see_a_new_certificate_and_old_ones_go_on(
    loop: str, authority: Authority, tmp_path: Path
) -> None:
    used = Signed(tmp_path / "certificate.pem", tmp_path / "key.pem")
    used.replace(authority.server())
    context = authority.context()
    with secure_broker(tmp_path / "data", used, HEADWATER_LOOP=loop) as broker:
        port = broker.ports["psmb"]
        with secured(port, context) as wire:
            greet(wire)
            before = shown(port, context)
            used.replace(authority.server())
            for _ in eventually():
                if (now := shown(port, context)) != before:
                    break
            wire.sendall(psmb.PsmbClientSession.publishing("a") + psmb.encode_messages([b"x"]))
            wire.sendall(b"NOP")
            received = b""
            while not received.endswith(b"NIL"):
                received += wire.recv(100)
            # A pair that does not fit is not used, not even if someone insists.
            used.replace(Signed(authority.server().certificate, used.key.resolve()))
            broker.signal(signal.SIGHUP)
            for _ in eventually():
                if "KEY_VALUES_MISMATCH; the one before is still used" in broker.log:
                    break
            assert shown(port, context) == now
        used.replace(authority.server())
        broker.signal(signal.SIGHUP)
        for _ in eventually():
            if shown(port, context) not in (before, now):
                break
        assert broker.stop() == 0


def test_the_console_takes_a_new_certificate_too(authority: Authority, tmp_path: Path) -> None:
    used = Signed(tmp_path / "certificate.pem", tmp_path / "key.pem")
    used.replace(authority.server())
    context = authority.context()
    with secure_broker(tmp_path / "data", used, HEADWATER_LISTEN_CONSOLE=SECURE) as broker:
        port = broker.ports["console"]
        with secured(port, context) as wire:
            before = wire.getpeercert(binary_form=True)
            used.replace(authority.server())
            for _ in eventually():
                if shown(port, context) != before:
                    break
            wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert wire.recv(100).startswith(b"HTTP/1.1 200")
        assert "the console has ended" not in broker.log


def test_a_listener_has_its_own_certificate_and_asks_for_those_of_clients(
    authority: Authority, tmp_path: Path
) -> None:
    own, client, data = authority.server(), authority.client("ann"), tmp_path / "data"
    data.mkdir(mode=0o700)
    Users(data / USERS_FILE).add("ann", "operator")
    with secure_broker(
        data,
        authority.server(),
        HEADWATER_TLS_CLIENT_CA=str(authority.certificate),
        HEADWATER_LISTEN_BPSP=SECURE,
        HEADWATER_LISTENER_PSMB_ANONYMOUS="false",
        HEADWATER_LISTENER_PSMB_CERTIFICATE=str(own.certificate),
        HEADWATER_LISTENER_PSMB_KEY=str(own.key),
    ) as broker:
        plain, known = authority.context(), authority.context(client)
        assert shown(broker.ports["bpsp"], plain) != shown(broker.ports["psmb"], known)
        with secured(broker.ports["bpsp"], plain) as wire:
            assert wire.recv(1)  # only this machine can reach it: one is asked for, not required
        refused = pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED")
        with secured(broker.ports["psmb"], plain) as wire, refused:
            wire.recv(1)
        with secured(broker.ports["psmb"], known) as wire:
            greet(wire)


def test_a_certificate_is_how_a_bmtp_client_logs_in(authority: Authority, tmp_path: Path) -> None:
    """Its name is the user whom rules are for. BMTP has no words for who a client is."""
    data, signed_by = tmp_path / "data", {"HEADWATER_TLS_CLIENT_CA": str(authority.certificate)}
    book = AccessBook(data)
    for name in ("ann", "bob"):
        book.add_user(name, "devices")
    book.allow("ann", ["publish"], "bmtp/1")
    closed = {f"HEADWATER_LISTENER_{name}_ANONYMOUS": "false" for name in ("BMTP", "ANY")}
    listen = {"HEADWATER_LISTEN_BMTP": SECURE, "HEADWATER_LISTEN_ANY": SECURE}
    with secure_broker(data, authority.server(), **signed_by, **closed, **listen) as broker:
        ann, bob = (authority.context(authority.client(name)) for name in ("ann", "bob"))
        for port in (broker.ports["bmtp"], broker.ports["any"]):
            assert bmtp_statuses(port, ann, 1, 2) == [bmtp.DONE, bmtp.NOT_PERMITTED]
            assert bmtp_statuses(port, bob, 1) == [bmtp.NOT_PERMITTED]
        # The listener of BMTP alone tells a client without a certificate in TLS; one for any
        # protocol takes it in, and BMTP tells it: CONNACK 2.
        refused = pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED")
        with secured(broker.ports["bmtp"], authority.context()) as wire, refused:
            wire.recv(1)
        with secured(broker.ports["any"], authority.context()) as wire:
            wire.sendall(bmtp.HELLO)
            assert until_closed(wire) == bmtp.connack(bmtp.UNAVAILABLE)
        # Who is no user is refused in the same words, whoever has signed the certificate.
        stranger = authority.context(authority.client("eve"))
        with secured(broker.ports["bmtp"], stranger) as wire:
            wire.sendall(bmtp.HELLO)
            assert until_closed(wire) == bmtp.connack(bmtp.UNAVAILABLE)


def bmtp_statuses(port: int, context: ssl.SSLContext, *channels: int) -> list[int]:
    """How a message to each of the channels is answered."""
    statuses = []
    with secured(port, context) as wire:
        wire.sendall(bmtp.HELLO)
        assert exactly(wire, 1) == bmtp.connack(bmtp.DONE)
        session = BmtpClientSession()
        for channel in channels:
            wire.sendall(session.publish(session.bodies(str(channel), [b"x"]), qos=1))
            statuses.append(exactly(wire, 2)[0] & 0x0F)
    return statuses


def exactly(wire: ssl.SSLSocket, count: int) -> bytes:
    received = b""
    while len(received) < count and (data := wire.recv(count - len(received))):
        received += data
    return received


def test_a_certificate_that_expires_soon_is_told(authority: Authority, tmp_path: Path) -> None:
    with secure_broker(
        tmp_path / "data", authority.server(days=3), HEADWATER_LISTEN_CONSOLE=SECURE
    ) as broker:
        assert "of psmb expires in 3 days" in broker.log
        with httpx.Client(
            base_url=f"https://localhost:{broker.ports['console']}",
            verify=authority.context(),
            timeout=PATIENCE,
            trust_env=False,
        ) as client:
            (alert,) = client.get("/api/v1/overview").json()["alerts"]
            assert (alert["kind"], alert["severity"]) == ("tls", "warning")
            assert "of console expires in 3 days" in alert["message"]
            metrics = client.get("/metrics").text
        in_three_days = time.time() + 3 * 86400
        for listener in ("psmb", "console"):
            name = f'headwater_certificate_expires_seconds{{listener="{listener}"}} '
            (value,) = (line for line in metrics.splitlines() if line.startswith(name))
            assert float(value.removeprefix(name)) == pytest.approx(in_three_days, abs=PATIENCE * 5)


@pytest.mark.parametrize("listener", ["psmb", "bmtp", "prism", "bpsp", "crystal", "any", "flight"])
def test_a_client_with_tls_at_a_plain_port_is_closed_at_once(
    listener: str, plain_broker: BrokerProcess
) -> None:
    refused = pytest.raises((ssl.SSLError, ConnectionError))  # and not that it takes too long
    with refused, secured(plain_broker.ports[listener], ssl.create_default_context()):
        pass


@pytest.fixture(scope="module")
def plain_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("plain") / "data"
    with BrokerProcess(data, toml=ALL_FIVE, HEADWATER_LIMITS_HANDSHAKE_SECONDS="3600") as broker:
        yield broker
