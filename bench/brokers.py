"""Servers: found, started in a directory of their own, watched through /proc, and stopped.

Each kind of server is a small class that writes its configuration and names its command. They are
set up to be as fast as they can be without losing messages: limits on slow consumers are lifted,
logging is off.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from bench.wire import crystal, prism
from headwater.registry import REGISTRY

HOST = "127.0.0.1"
START_SECONDS = 60.0
STOP_SECONDS = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")


class ServerFailed(Exception):
    """A server did not start, or ended by itself."""


class Server(ABC):
    """One server process."""

    kind: ClassVar[str]
    program: ClassVar[str]

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        self.home = home
        self.settings = settings  # of this broker's configuration; the peers know none of them
        self.ports: dict[str, int] = {}
        self.ready_seconds = 0.0  # from the start of the process
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def find(cls) -> str | None:
        """The program, from this environment first, then from the system."""
        beside = Path(sys.executable).with_name(cls.program)
        if beside.exists():
            return str(beside)
        places = [os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"]
        return shutil.which(cls.program, path=os.pathsep.join(places))

    @abstractmethod
    def command(self, program: str) -> list[str]:
        """Write the configuration into `home` and choose ports; returns what to run."""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def is_ready(self) -> bool:
        """Whether it accepts connections."""
        return accepts(next(iter(self.ports.values())))

    def start(self) -> None:
        program = self.find()
        if program is None:
            raise ServerFailed(f"{self.program} is not installed")
        command = self.command(program)
        began = time.monotonic()
        with (self.home / "output").open("wb") as out, (self.home / "errors").open("wb") as err:
            # A session of its own: Ctrl-C is for the benchmark, which then stops its servers.
            # A directory of its own: no configuration file that lies about is taken.
            self._process = subprocess.Popen(
                command,
                cwd=self.home,
                env=self.environment(),
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() - began > START_SECONDS:
                self.stop()
                raise ServerFailed(f"{self.kind} did not start: {self.last_words()}")
            time.sleep(0.002)
        self.ready_seconds = time.monotonic() - began

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def last_words(self) -> str:
        words = [(self.home / name).read_text(errors="replace") for name in ("output", "errors")]
        return " ".join(words).strip()[-500:]

    def address(self, wire: str) -> tuple[str, int]:
        return HOST, self.ports[wire]

    @property
    def pid(self) -> int:
        if self._process is None or self._process.poll() is not None:
            raise ServerFailed(f"{self.kind} ended by itself: {self.last_words()}")
        return self._process.pid

    def cpu_seconds(self) -> float:
        """User and system time of all its threads."""
        # The name in parentheses may contain spaces; the fields after it do not.
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory(self) -> int:
        return self._status("VmRSS")

    def peak_memory(self) -> int:
        return self._status("VmHWM")

    def reset_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def _status(self, key: str) -> int:
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"^{key}:\s+(\d+) kB$", text, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024


WAITING = "bench/waiting"  # the topic of a queue that exists before anyone consumes it

# Who may connect. The prefetch is large (the default is 1), so that consumers which acknowledge
# every message are not what is waited for.
_CONFIGURATION = f"""
    [crystal]
    secret_key = "{crystal.SECRET}"

    [prism]
    prefetch = 5000

    [[prism.apps]]
    client_id = "{prism.APP}"
    client_secret = "{prism.SECRET}"

    [[prism.queues]]
    app = "{prism.APP}"
    name = "{prism.key(WAITING)}"
"""


class Headwater(Server):
    """This broker, with every message made durable (`log.sync = "always"`, its default)."""

    kind = "headwater"
    program = "headwater"

    def command(self, program: str) -> list[str]:
        file = write(self.home / "headwater.toml", _CONFIGURATION)
        return [program, "serve", "--config", str(file), "--data", str(self.home / "data")]

    def environment(self) -> dict[str, str]:
        # No setting of the person who runs the benchmark may leak in.
        clean = {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")}
        listeners = {f"listen.{wire}": f"{HOST}:0" for wire in REGISTRY}
        others = {f"listen.{name}": "off" for name in ("any", "console", "flight")}
        # pyarrow's own client will do.
        others["listener.flight.anonymous"] = "true"
        settings = {"log.sync": "always", **listeners, **others, **self.settings}
        return clean | {
            f"HEADWATER_{key.upper().replace('.', '_')}": value for key, value in settings.items()
        }

    def is_ready(self) -> bool:
        lines = (self.home / "output").read_text(errors="replace").splitlines()
        for line in lines:
            if found := re.match(r"(\w+) on \S+:(\d+) ", line):
                self.ports[found[1].lower()] = int(found[2])
        return "ready" in lines


class Nats(Server):
    kind = "nats"
    program = "nats-server"
    extra: ClassVar[str] = ""

    def command(self, program: str) -> list[str]:
        self.ports = dict.fromkeys(("nats", "jetstream"), free_port())
        websocket = self.ports["nats-ws"] = free_port()
        # Slow consumers keep their connection, as they do with this broker.
        text = f"""
            listen: "{HOST}:{self.ports["nats"]}"
            max_pending: 4GB
            write_deadline: "60s"
            ping_interval: "10m"
            {self.extra.format(home=self.home, host=HOST, websocket=websocket)}
        """
        return [program, "-c", str(write(self.home / "nats.conf", text))]


class NatsWebSocket(Nats):
    """With its listener for WebSocket; without TLS, like all others here."""

    kind = "nats-ws"
    extra = 'websocket {{ listen: "{host}:{websocket}", no_tls: true }}'

    def is_ready(self) -> bool:
        return accepts(self.ports["nats-ws"])


class JetStream(Nats):
    """With its default: the operating system decides when a message reaches the disk."""

    kind = "jetstream"
    extra = 'jetstream {{ store_dir: "{home}/store", max_file_store: 64GB }}'


class JetStreamSynced(Nats):
    """As careful as this broker: fsync before every acknowledgement."""

    kind = "jetstream-fsync"
    extra = (
        'jetstream {{ store_dir: "{home}/store", max_file_store: 64GB, sync_interval: "always" }}'
    )


class Mosquitto(Server):
    kind = "mosquitto"
    program = "mosquitto"
    persistence: ClassVar[str] = "persistence false"

    def command(self, program: str) -> list[str]:
        self.ports = {"mqtt": free_port()}
        lines = [
            f"listener {self.ports['mqtt']} {HOST}",
            "allow_anonymous true",
            "set_tcp_nodelay true",
            "max_queued_messages 0",  # 0 is "no limit", here and below
            "max_queued_bytes 0",
            "max_inflight_messages 0",
            "sys_interval 0",
            "log_dest none",
            self.persistence,
            f"persistence_location {self.home}/",
        ]
        if os.geteuid() == 0:
            lines.append("user root")  # it would give up the right to write into its directory
        return [program, "-c", str(write(self.home / "mosquitto.conf", "\n".join(lines)))]


class MosquittoDurable(Mosquitto):
    """It writes its store at intervals and at the end; it acknowledges before that."""

    kind = "mosquitto-durable"
    persistence = "persistence true"


class Redis(Server):
    kind = "redis"
    program = "redis-server"
    durability: ClassVar[str] = "appendonly no"

    def command(self, program: str) -> list[str]:
        self.ports = {"redis": free_port()}
        text = f"""
            bind {HOST}
            port {self.ports["redis"]}
            dir {self.home}
            save ""
            client-output-buffer-limit pubsub 0 0 0
            maxclients 15000
            {self.durability}
        """
        return [program, str(write(self.home / "redis.conf", text))]


class RedisDurable(Redis):
    kind = "redis-aof"
    durability = "appendonly yes\nappendfsync always"


KINDS: dict[str, type[Server]] = {
    kind.kind: kind
    for kind in (
        Headwater,
        Nats,
        NatsWebSocket,
        JetStream,
        JetStreamSynced,
        Mosquitto,
        MosquittoDurable,
        Redis,
        RedisDurable,
    )
}


class Yard:
    """Where servers run: a directory for each, below one that is on a real disk."""

    def __init__(self, work: Path) -> None:
        self._work = work.resolve()
        self._number = 0

    @contextmanager
    def server(self, kind: str, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
        """A server that has started; it is gone afterwards, with all it stored."""
        self._number += 1
        home = self._work / f"{self._number:03d}-{kind}"
        home.mkdir(parents=True)
        server = KINDS[kind](home, settings or {})
        try:
            server.start()
            yield server
        finally:
            server.stop()
            shutil.rmtree(home, ignore_errors=True)


def accepts(port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex((HOST, port)) == 0


def free_port() -> int:
    with socket.socket() as link:
        link.bind((HOST, 0))
        port: int = link.getsockname()[1]
        return port


def write(path: Path, text: str) -> Path:
    path.write_text("\n".join(line.strip() for line in text.splitlines()) + "\n")
    return path
