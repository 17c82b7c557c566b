"""Flight with TLS: certificates of clients, and a new one for the broker."""

import contextlib
import json
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight

from headwater.identity.book import AccessBook
from tests.e2e.process import PATIENCE, BrokerProcess, eventually
from tests.flight.client import rows
from tests.tls.certificates import Authority, Signed


def secure_client(port: int, authority: Authority, own: Signed | None = None) -> Any:
    pair = {}
    if own is not None:
        pair = {"cert_chain": own.certificate.read_bytes(), "private_key": own.key.read_bytes()}
    roots = authority.certificate.read_bytes()
    return flight.FlightClient(f"grpc+tls://localhost:{port}", tls_root_certs=roots, **pair)


def test_certificates_of_clients(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.server()
    AccessBook(tmp_path / "data").add_user("ann", "client")
    with BrokerProcess(
        tmp_path / "data",
        HEADWATER_LISTEN_FLIGHT="tls://127.0.0.1:0",
        HEADWATER_LISTENER_FLIGHT_CERTIFICATE=str(pair.certificate),
        HEADWATER_LISTENER_FLIGHT_KEY=str(pair.key),
        HEADWATER_LISTENER_FLIGHT_CLIENT_CA=str(authority.certificate),
        HEADWATER_LISTENER_FLIGHT_ANONYMOUS="false",
    ) as broker:
        port = broker.ports["flight"]
        with (
            secure_client(port, authority) as stranger,
            pytest.raises(flight.FlightUnavailableError),
        ):
            list(stranger.do_action(flight.Action("log", b"")))
        with secure_client(port, authority, authority.client("ann")) as known:
            assert list(known.do_action(flight.Action("log", b"")))


def test_half_a_handshake_is_disconnected(tmp_path: Path) -> None:
    pair = Authority(tmp_path).server()
    with BrokerProcess(
        tmp_path / "data",
        HEADWATER_LISTEN_FLIGHT="tls://127.0.0.1:0",
        HEADWATER_TLS_CERTIFICATE=str(pair.certificate),
        HEADWATER_TLS_KEY=str(pair.key),
        HEADWATER_LIMITS_HANDSHAKE_SECONDS="0.5",
    ) as broker:
        address = ("127.0.0.1", broker.ports["flight"])
        with socket.create_connection(address, PATIENCE) as half:
            half.sendall(bytes.fromhex("16030100c8010000c40303"))  # a ClientHello of 200 bytes
            assert half.recv(1) == b""
        for _ in eventually():
            if broker.refusals("handshake_seconds") == 1:
                break


def test_a_new_certificate_without_a_restart(tmp_path: Path) -> None:
    """Streams that run go on, and clients find the new certificate by themselves."""
    authority = Authority(tmp_path)
    used = Signed(tmp_path / "certificate.pem", tmp_path / "key.pem")
    used.replace(authority.server())
    with BrokerProcess(
        tmp_path / "data",
        HEADWATER_LISTEN_FLIGHT="tls://127.0.0.1:0",
        HEADWATER_TLS_CERTIFICATE=str(used.certificate),
        HEADWATER_TLS_KEY=str(used.key),
    ) as broker:
        port, count = broker.ports["flight"], 20_000
        with secure_client(port, authority) as client:
            for sequence in range(count // 1000):
                told = json.dumps({"do": "append", "producer": "p", "sequence": sequence})
                batch = rows(*[("a", b"x" * 2000)] * 1000)
                writer, answers = client.do_put(
                    flight.FlightDescriptor.for_command(told), batch.schema
                )
                with writer:
                    writer.write_batch(batch)
                    writer.done_writing()
                    assert answers.read()
            ticket = flight.Ticket(json.dumps({"start": 0, "end": count}).encode())
            stream = client.do_get(ticket)
            got = len(next(stream).data)
            before = ssl.get_server_certificate(("127.0.0.1", port), timeout=PATIENCE)
            used.replace(authority.server())
            for _ in eventually():
                with contextlib.suppress(OSError):
                    if ssl.get_server_certificate(("127.0.0.1", port), timeout=PATIENCE) != before:
                        break
            assert got < count
            assert got + sum(len(chunk.data) for chunk in stream) == count
            assert list(client.do_action(flight.Action("log", b"")))
        assert broker.stop() == 0
    assert "Flight has ended" not in broker.log
