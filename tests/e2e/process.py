"""A real broker in a process of its own, and raw sockets to talk to it."""

import contextlib
import os
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headwater.broker.queues import ledger
from headwater.control import call
from headwater.protocols.bpsp import codec as bpsp
from headwater.protocols.psmb import codec as psmb
from headwater.registry import REGISTRY

#: Seconds that anything may take on a machine that has much else to do. A test that passes never
#: waits for so long.
PATIENCE = 60.0
_SERVE = (sys.executable, "-m", "headwater", "serve")
LISTENERS = (*REGISTRY, "any", "flight")
APP, SECRET = "shop", "a secret of a test, long enough"
#: An app of Prism and a secret of CrystalConnector, so that clients of all five can connect.
ALL_FIVE = f"""
[crystal]
secret_key = "{SECRET}"

[[prism.apps]]
client_id = "{APP}"
client_secret = "{SECRET}"
"""


class BrokerProcess:
    """`headwater serve` on free ports of loopback. Starting it again keeps the data.

    Settings are given as environment variables, and what these cannot say as a file (`toml`).
    """

    #: Further flags of `headwater serve`.
    arguments: tuple[str, ...] = ()
    #: How many files it may have open.
    files: int | None = None

    def __init__(self, data: Path, *, toml: str = "", **settings: str) -> None:
        self.data = data
        if toml:
            file = data.with_suffix(".toml")
            file.write_text(toml)
            settings["HEADWATER_CONFIG"] = str(file)
        self.ports: dict[str, int] = {}
        #: Whom each listener is open to, as it says.
        self.table: dict[str, str] = {}
        self.errors: list[str] = []
        self._settings = {
            **{f"HEADWATER_LISTEN_{name.upper()}": "127.0.0.1:0" for name in LISTENERS},
            "HEADWATER_LISTEN_CONSOLE": "off",  # a process more, which few tests need
            "HEADWATER_AUDIT_EVENTS": "off",  # what it records would take offsets that tests count
            "HEADWATER_LISTENER_FLIGHT_ANONYMOUS": "true",  # so that pyarrow's own client will do
            **settings,
        }
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._wires: list[Wire] = []
        self._keeps_ports = False
        self._kept: list[socket.socket] = []
        weakref.finalize(self, _close_all, self._kept)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has written to standard error."""
        return "".join(self.errors)

    @property
    def ended(self) -> bool:
        """Whether it has come to its end by itself."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> Self:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")}
        self._process = subprocess.Popen(
            [*self._limits(), *_SERVE, "--data", str(self.data), "--verbose", *self.arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment | self._settings,
            cwd=self.data.parent,
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read_errors, args=(self._process,))
        self._reader.start()
        for line in self._process.stdout:
            if line.strip() == "ready":
                _close_all(self._kept)
                return self
            name, _, rest = line.strip().partition(" on ")
            self.ports[name] = int(rest.split()[0].rpartition(":")[2])
            self.table[name] = rest.partition(" open to ")[2]
        raise RuntimeError(f"the broker did not start: {self.finish()} {self.log}")

    def _read_errors(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self.errors.extend(process.stderr)

    def finish(self) -> int:
        """Wait for its end; returns the exit code."""
        assert self._process is not None and self._reader is not None
        code = self._process.wait(PATIENCE)
        self._reader.join()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        self._process = None
        if self._keeps_ports:
            self._hold_ports()
        return code

    def keep_ports(self) -> None:
        """Listen on the same ports when started again."""
        self._keeps_ports = True
        for name, port in self.ports.items():
            self._settings[f"HEADWATER_LISTEN_{name.upper()}"] = f"127.0.0.1:{port}"

    def _hold_ports(self) -> None:
        """While the broker is away, nobody else is given its ports; whoever connects is refused."""
        for port in self.ports.values():
            # The console of a broker that was killed has its own for a moment longer.
            with contextlib.suppress(OSError):
                self._kept.append(held_port(port))

    def set(self, **settings: str) -> None:
        """Change settings; they hold when it is started again."""
        self._settings.update(settings)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.finish()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.finish()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def memory(self) -> int:
        """Bytes of resident memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(f"the broker's last words:\n{self.log[-3000:]}")
        for wire in self._wires:
            wire.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.kill()
        _close_all(self._kept)

    def _limits(self) -> list[str]:
        return [] if self.files is None else ["prlimit", f"--nofile={self.files}:{self.files}"]

    def refusals(self, limit: str) -> int:
        """How often somebody was over a limit, as its metric tells."""
        found: int = call(self.data, "metrics")["access"]["limits"][limit]
        return found

    def position(self, subscriber: str) -> int | None:
        """How far a durable subscriber is, as it would be found after a crash."""
        found = self._state("SELECT position FROM cursors WHERE name = ?", subscriber)
        return None if found is None else int(found)

    def queue_on_disk(self, name: str) -> tuple[int, list[int]]:
        """What a queue would know after a crash: its position, and the messages before that which
        are not done with. The position is -1 while nothing is known."""
        content = self._state("SELECT content FROM queues WHERE name = ?", name)
        if content is None:
            return -1, []
        position, items = ledger.decode(content, sys.maxsize)
        return position, sorted(offset for offset, _ in items)

    def _state(self, query: str, name: str) -> Any:
        state = self.data / "state.db"
        with contextlib.closing(sqlite3.connect(state, timeout=PATIENCE)) as database:
            row = database.execute(query, (name,)).fetchone()
        return None if row is None else row[0]

    def wire(self, protocol: str) -> "Wire":
        """A raw connection."""
        wire = Wire(self.ports[protocol])
        self._wires.append(wire)
        return wire

    def psmb(self) -> "Wire":
        return self.wire("psmb")

    def publisher(self, topic: str, version: int = 2) -> "Wire":
        """A PSMB connection in publish mode."""
        wire = self.psmb()
        wire.send(psmb.PsmbClientSession.hello(version) + psmb.PsmbClientSession.publishing(topic))
        wire.expect(b"OK\0\0\0\0\0OK\0")
        return wire

    def subscriber(self, pattern: str, identity: int | None = None, version: int = 2) -> "Wire":
        """A PSMB connection in subscribe mode."""
        wire = self.psmb()
        wire.send(
            psmb.PsmbClientSession.hello(version)
            + psmb.PsmbClientSession.subscribe(pattern, identity)
        )
        wire.expect(b"OK\0\0\0\0\0OK\0")
        return wire

    def bpsp(self) -> "BpspWire":
        wire = BpspWire(self.ports["bpsp"])
        self._wires.append(wire)
        assert wire.frame()[0] == bpsp.INFO
        return wire


class Wire:
    """A blocking socket with patience."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self.socket.recv(min(count - len(data), 1 << 20))
            if not chunk:
                raise EOFError(f"closed after {bytes(data)!r}")
            data += chunk
        return bytes(data)

    def expect(self, data: bytes) -> None:
        got = self.read(len(data))
        assert got == data, f"{got!r} instead of {data!r}"

    def rest(self) -> bytes:
        """All that comes until the broker closes the connection."""
        data = bytearray()
        with contextlib.suppress(ConnectionResetError):
            while chunk := self.socket.recv(1 << 20):
                data += chunk
        return bytes(data)

    def close(self) -> None:
        self.socket.close()

    # PSMB

    def messages(self, *payloads: bytes) -> None:
        """Publish, and wait until it is durable."""
        self.send(psmb.encode_messages(payloads) + b"NOP")
        while (word := self.read(3)) == b"NOP":  # it was silent for long
            self.send(b"NIL")
        assert word == b"NIL", word

    def expect_messages(self, *payloads: bytes) -> None:
        """These messages and nothing else; NOPs between them are left unanswered."""
        for payload in payloads:
            assert self.message() == payload

    def message(self, answer: bool = False) -> bytes:
        while True:
            word = self.read(3)
            if word == b"NOP":
                if answer:
                    self.send(b"NIL")
                continue
            assert word == b"MSG", word
            (size,) = struct.unpack(">Q", self.read(8))
            return self.read(size)


class BpspWire(Wire):
    def frame(self) -> tuple[int, dict[str, str], bytes]:
        headers_size, opcode, _, data_size = struct.unpack(">HBBI", self.read(8))
        return opcode, dict(bpsp.parse_headers(self.read(headers_size))), self.read(data_size)

    def request(self, opcode: int, data: bytes = b"", flag: int = bpsp.ACK, **headers: str) -> None:
        named = tuple((key.replace("_", "-"), value) for key, value in headers.items())
        self.send(bpsp.frame(opcode, bpsp.format_headers(named), data, flag))

    def status(self) -> int:
        """The status of the answer that has to come now."""
        opcode, headers, _ = self.frame()
        assert opcode in (bpsp.OK, bpsp.ERR)
        return int(headers["x-status-code"])

    def subscribe(self, pattern: str, tag: str = "_0") -> None:
        self.request(bpsp.SUB, x_topic=pattern, x_sub_tag=tag)
        assert self.status() == 200

    def publish(self, topic: str, payload: bytes, flag: int = bpsp.ACK) -> int:
        self.request(bpsp.PUB, payload, flag, x_topic=topic)
        return self.status()


def held_port(port: int = 0) -> socket.socket:
    """A port that the system gives to nobody else while this is open. Nobody listens on it, but
    a server that asks for this very port can."""
    holding = socket.socket()
    try:
        holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holding.bind(("127.0.0.1", port))
    except OSError:
        holding.close()
        raise
    return holding


def _close_all(sockets: list[socket.socket]) -> None:
    while sockets:
        sockets.pop().close()


def eventually(seconds: float = PATIENCE) -> Iterator[None]:
    """`for _ in eventually(): if it_is_so: break` fails when it never is."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")
