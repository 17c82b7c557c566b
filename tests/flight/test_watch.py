"""What gRPC takes in before anyone sees it has an end, and who does no wrong is left alone."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from headwater.flight.balances import REFUSED_BYTES, Balance, WriteAllowance
from headwater.flight.kernel import Kernel
from headwater.flight.requests import WRITE_SCHEMA
from headwater.flight.watch import address_of
from headwater.sockets import hang_up_on
from tests.e2e.process import PATIENCE, BrokerProcess, eventually
from tests.flight.client import Client, rows
from tests.flight.test_bounds import counted

MIB = 1 << 20
CLOSED = {"HEADWATER_LISTENER_FLIGHT_ANONYMOUS": "auto", "HEADWATER_FLIGHT_TOKEN": "t" * 20}
COUNTERS = tuple(
    f"flight_connections_{name}" for name in ("too_large", "unfinished", "refused", "cut_off")
)

SEND_ACTION = """
import sys
from pyarrow import flight
client = flight.connect("grpc://127.0.0.1:" + sys.argv[1])
try:
    list(client.do_action(flight.Action("log", bytes(int(sys.argv[2])))))
except flight.FlightUnavailableError:
    sys.exit(3)
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("flight") / "data") as running:
        yield running
        assert [counted(running, name) for name in COUNTERS] == [0] * len(COUNTERS)


def counts_to(number: int, broker: BrokerProcess, name: str, limit: str) -> None:
    """Wait until so many were closed, by the name of the counter and by that of the limit: they are
    counted a moment later."""
    for _ in eventually():
        if (counted(broker, name), broker.refusals(limit)) == (number, number):
            return


def peak(broker: BrokerProcess) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    (line,) = [each for each in status.splitlines() if each.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def send_action(broker: BrokerProcess, size: int) -> int:
    """The exit code: 3 if the connection was closed."""
    port = str(broker.ports["flight"])
    command = [sys.executable, "-c", SEND_ACTION, port, str(size)]
    return subprocess.run(command, timeout=PATIENCE, check=False).returncode


def test_a_huge_request_of_a_stranger_takes_little_memory(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", **CLOSED) as broker,
        contextlib.closing(Client(broker.ports["flight"], "t" * 20)) as client,
    ):
        client.act("log")
        before = peak(broker)
        assert send_action(broker, 512 * MIB) == 3
        assert peak(broker) - before < 256 * MIB
        counts_to(1, broker, "flight_connections_too_large", "flight.request_bytes")
        for _ in eventually():  # said a moment after it is counted
            if "belong to no write" in broker.log:
                break
        assert client.act("log")["end"] == 0  # on its old connection


def put_many(port: int, producer: str, compression: str | None, batch: Any, count: int) -> int:
    client = flight.connect(f"grpc://127.0.0.1:{port}")
    return put_with(client, producer, compression, batch, count)


def put_with(client: Any, producer: str, compression: str | None, batch: Any, count: int) -> int:
    command = {"do": "append", "producer": producer, "sequence": 0}
    descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
    options = flight.FlightCallOptions(
        write_options=pa.ipc.IpcWriteOptions(compression=compression)
    )
    writer, reader = client.do_put(descriptor, WRITE_SCHEMA, options)
    with writer:
        for _ in range(count):
            writer.write_batch(batch)
        writer.done_writing()
        return int(json.loads(reader.read().to_pybytes())["count"])


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_large_writes_pass(broker: BrokerProcess, compression: str | None) -> None:
    batch = rows(*[("a", os.urandom(MIB // 2) + bytes(MIB // 2))] * 32)
    with contextlib.closing(flight.connect(f"grpc://127.0.0.1:{broker.ports['flight']}")) as client:
        assert put_with(client, f"one-{compression}", compression, batch, 16) == 512


def test_several_writes_on_one_connection_pass(broker: BrokerProcess) -> None:
    batch = rows(*[("a", bytes(MIB))] * 8)
    with (
        contextlib.closing(flight.connect(f"grpc://127.0.0.1:{broker.ports['flight']}")) as client,
        ThreadPoolExecutor(6) as pool,
    ):
        done = [pool.submit(put_with, client, f"s{n}", None, batch, 16) for n in range(6)]
        assert [each.result() for each in done] == [128] * 6


def test_requests_do_not_add_up(broker: BrokerProcess) -> None:
    """100 MiB in requests of 1 MiB, all on one connection."""
    with contextlib.closing(flight.connect(f"grpc://127.0.0.1:{broker.ports['flight']}")) as client:
        for _ in range(100):
            list(client.do_action(flight.Action("log", b"{" + b" " * MIB + b"}")))


def test_writes_that_are_refused_do_not_add_up(broker: BrokerProcess) -> None:
    batch = rows(*[("a", bytes(MIB))] * 16)
    with contextlib.closing(flight.connect(f"grpc://127.0.0.1:{broker.ports['flight']}")) as client:
        for _ in range(10):
            writer, reader = client.do_put(flight.FlightDescriptor.for_command(b"{}"), WRITE_SCHEMA)
            with pytest.raises(flight.FlightServerError, match="say"), writer:
                writer.write_batch(batch)
                writer.done_writing()
                reader.read()


def test_who_makes_no_call_is_disconnected_and_who_did_is_not(tmp_path: Path) -> None:
    short = {"HEADWATER_LIMITS_HANDSHAKE_SECONDS": "0.5"}
    with (
        BrokerProcess(tmp_path / "data", **short) as broker,
        contextlib.closing(Client(broker.ports["flight"])) as client,
    ):
        client.act("log")
        inode = the_only_inode(broker)
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", broker.ports["flight"])) as silent:
                silent.settimeout(PATIENCE)
                while silent.recv(1 << 16):
                    pass  # the server's settings, and then the end
        counts_to(2, broker, "flight_connections_unfinished", "handshake_seconds")
        client.act("log")
        assert the_only_inode(broker) == inode


def the_only_inode(broker: BrokerProcess) -> int:
    kernel = Kernel()
    with contextlib.closing(kernel):
        for _ in eventually():
            if len(found := kernel.wires(broker.ports["flight"])) == 1:
                return found[0].inode
    raise AssertionError


def test_connections_have_a_limit_and_clients_come_back(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", HEADWATER_FLIGHT_CONNECTIONS="3") as broker:
        address = ("127.0.0.1", broker.ports["flight"])
        with contextlib.closing(Client(broker.ports["flight"])) as client:
            client.act("log")
            inode = the_only_inode(broker)
            idle = [socket.create_connection(address) for _ in range(6)]
            counts_to(4, broker, "flight_connections_refused", "flight.connections")
            with contextlib.closing(Kernel()) as kernel:
                left = {each.inode for each in kernel.wires(address[1])}
            assert len(left) == 3 and inode in left  # who was let in goes last
            hanging = [each for each in idle if is_closed(each)]
            assert len(hanging) == 4
            client.act("log")
        for each in idle:
            each.close()


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.2)
    with contextlib.suppress(TimeoutError):
        while connection.recv(1 << 16):
            pass
        return True
    return False


def test_a_client_whose_idle_connection_was_closed_does_not_notice(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", HEADWATER_FLIGHT_CONNECTIONS="1") as broker:
        port = broker.ports["flight"]
        with (
            contextlib.closing(Client(port)) as one,
            # Clients of one process and address share a connection.
            contextlib.closing(flight.connect(f"grpc://localhost:{port}")) as other,
        ):
            one.act("log")
            for closed in range(1, 4):  # each call has the connection of the other client closed
                for _ in eventually():
                    # A busy machine: the client does not know yet what the kernel knows.
                    with contextlib.suppress(flight.FlightUnavailableError):
                        if closed % 2:
                            list(other.do_action(flight.Action("log", b"{}")))
                        else:
                            one.act("log")
                        break
                for _ in eventually():
                    if counted(broker, "flight_connections_refused") == closed:
                        break


def test_the_kernel_tells_of_connections_and_their_bytes() -> None:
    with contextlib.closing(Kernel()) as kernel:
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with socket.create_server((host, 0), family=family) as listening:
                port = listening.getsockname()[1]
                near = socket.create_connection((host, port))
                far, _ = listening.accept()
                with near, far:
                    near.sendall(b"x" * 1000)
                    far.recv(300)
                    (wire,) = kernel.wires(port)
                    assert wire.read == 300
                    assert wire.peer == near.getsockname()[:2]
                    assert wire.inode == os.fstat(far.fileno()).st_ino
                    assert hang_up_on({wire.inode, 1}) == {wire.inode}
                    assert near.recv(1) == b""


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:5000", ("127.0.0.1", 5000)),
        ("ipv6:[::1]:5000", ("::1", 5000)),
        ("ipv6:[::ffff:10.0.0.1]:5000", ("10.0.0.1", 5000)),
        ("ipv6:[fe80::1%eth0]:5000", ("fe80::1", 5000)),
        ("unix:", ("", 0)),
    ],
)
def test_peers_have_an_address(peer: str, address: tuple[str, int]) -> None:
    assert address_of(peer) == address


class Waiting:
    waiting_since: float | None = None


def settled(balance: Balance, read: int) -> Balance:
    balance.settle(balance.claim(), read, 0, balance.opened)
    return balance


ALLOWANCE = WriteAllowance(batch=100 * MIB, ahead=400 * MIB)


def test_what_calls_got_is_not_held() -> None:
    balance, call = Balance(), Waiting()
    balance.begin(10 * MIB)
    balance.write(call)
    assert settled(balance, 60 * MIB).held == pytest.approx(50 * MIB, abs=MIB)
    balance.take(50 * MIB)
    assert settled(balance, 61 * MIB).held < MIB


def test_a_write_may_read_ahead_unless_its_handler_waits() -> None:
    balance, call = Balance(), Waiting()
    balance.begin(0)
    balance.write(call)
    now = settled(balance, 600 * MIB).opened
    assert balance.beyond(ALLOWANCE, now) == pytest.approx(100 * MIB, abs=MIB)
    call.waiting_since = now - 5
    assert balance.beyond(ALLOWANCE, now) == pytest.approx(500 * MIB, abs=MIB)


def test_what_may_have_been_thrown_away_is_believed_once() -> None:
    balance, call = Balance(), Waiting()
    balance.begin(0)
    balance.end(call, REFUSED_BYTES)
    now = settled(balance, 2 * REFUSED_BYTES).opened
    assert balance.beyond(ALLOWANCE, now) == pytest.approx(REFUSED_BYTES, abs=MIB)
    assert balance.doubtful == REFUSED_BYTES
