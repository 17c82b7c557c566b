"""The bytes that are replayed, one module per protocol."""

from bench.wire.base import Aim, Burst, Wire, connect
from bench.wire.bmtp import Bmtp
from bench.wire.bpsp import Bpsp
from bench.wire.crystal import Crystal
from bench.wire.mqtt import Mqtt
from bench.wire.nats import JetStream, Nats
from bench.wire.prism import Prism
from bench.wire.psmb import Psmb
from bench.wire.redis import Redis

_PEERS = (Nats(), JetStream(), Mqtt(), Redis())
_OURS = (Psmb(), Bmtp(), Prism(), Bpsp(), Crystal())
#: The protocols of this broker that are measured.
OURS = tuple(wire.name for wire in _OURS)
WIRES: dict[str, Wire] = {wire.name: wire for wire in (*_PEERS, *_OURS)}

__all__ = ["OURS", "WIRES", "Aim", "Burst", "Wire", "connect"]
