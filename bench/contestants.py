"""Who takes part: a server, and the protocol that it is spoken to in."""

import os
import re
import subprocess
from dataclasses import dataclass
from importlib import metadata

from bench.brokers import KINDS
from bench.wire import OURS, Aim

_PACKAGES = ("mosquitto", "redis-server")


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    kind: str  # of server
    wire: str
    family: str  # what `--peers` calls it

    def is_installed(self) -> bool:
        return KINDS[self.kind].find() is not None


ALL: dict[str, Contestant] = {
    contestant.name: contestant
    for contestant in (
        Contestant("nats", "nats", "nats", "nats"),
        Contestant("nats-ws", "nats-ws", "nats-ws", "nats"),
        Contestant("jetstream", "jetstream", "jetstream", "jetstream"),
        Contestant("jetstream-fsync", "jetstream-fsync", "jetstream", "jetstream"),
        Contestant("mosquitto", "mosquitto", "mqtt", "mosquitto"),
        Contestant("mosquitto-durable", "mosquitto-durable", "mqtt", "mosquitto"),
        Contestant("redis", "redis", "redis", "redis"),
        Contestant("redis-aof", "redis-aof", "redis", "redis"),
        *(Contestant(f"headwater-{wire}", "headwater", wire, "headwater") for wire in OURS),
    )
}

FAMILIES = tuple(dict.fromkeys(contestant.family for contestant in ALL.values()))

# Brokers that hand a message on without keeping it, next to this one, which always keeps it.
LIVE = ("nats", "mosquitto", "redis", "headwater-psmb", "headwater-bpsp")

# Many publishers at once. What Prism delivers comes from a queue, and has to be acknowledged.
FLEETS = (*LIVE, "headwater-bmtp", "headwater-crystal")

# The same for streams to several subscribers at once, and to one. A message of a Prism queue goes
# to one consumer, so there is no fan-out. `nats-ws` is for those who speak WebSocket, too.
STREAMS = (*LIVE, "nats-ws", "headwater-bmtp", "headwater-crystal")
STREAMS_TO_ONE = (*STREAMS, "headwater-prism")

# What stands behind an acknowledgement differs; the names in the table say it.
DURABLE = (
    "jetstream",
    "jetstream-fsync",
    "mosquitto-durable",
    "redis-aof",
    *(f"headwater-{wire}" for wire in OURS),
)

# Queues: messages wait for a consumer, and come back when one is lost.
QUEUES = ("headwater-bmtp", "headwater-prism")


def aim(contestant: Contestant, address: tuple[str, int], payload_bytes: int, topic: str) -> Aim:
    return Aim(contestant.wire, address, topic, payload_bytes)


def versions() -> dict[str, str]:
    """By program, as it tells it itself."""
    asked = {
        "nats-server": ("nats", "--version"),
        "mosquitto": ("mosquitto", "-h"),
        "redis-server": ("redis", "--version"),
    }
    found = {"headwater": metadata.version("headwater")}
    for name, (kind, flag) in asked.items():
        program = KINDS[kind].find()
        if program is not None:
            said = subprocess.run([program, flag], capture_output=True, text=True, timeout=10)
            number = re.search(r"\d+(\.\d+)+", said.stdout)
            found[name] = number[0] if number else "unknown"
    return found


def install_peers() -> None:
    """From Debian's packages; needs root. RUNLEVEL keeps them from being started as services."""
    environment = {**os.environ, "RUNLEVEL": "1", "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-y", "--no-install-recommends", *_PACKAGES]
    subprocess.run(command, check=True, env=environment, timeout=600)
