"""The bytes that are replayed, one module per protocol."""

from bench.wire.base import Aim, Burst, Wire, connect, payloads
from bench.wire.bpsp import Bpsp
from bench.wire.mqtt import Mqtt
from bench.wire.nats import JetStream, Nats
from bench.wire.psmb import Psmb
from bench.wire.redis import Redis

WIRES: dict[str, Wire] = {
    wire.name: wire for wire in (Nats(), JetStream(), Mqtt(), Redis(), Psmb(), Bpsp())
}

__all__ = ["WIRES", "Aim", "Burst", "Wire", "connect", "payloads"]
