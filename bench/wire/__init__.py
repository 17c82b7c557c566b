"""The bytes that are replayed, one module per protocol.

The protocols of this broker are those of its registry that have a module here, under their name.
"""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

from bench.wire.base import Aim, Burst, Wire, connect
from bench.wire.mqtt import Mqtt
from bench.wire.nats import JetStream, Nats
from bench.wire.nats_websocket import NatsWebSocket
from bench.wire.redis import Redis
from headwater.registry import REGISTRY


def _ours() -> Iterator[Wire]:
    for name in REGISTRY:
        if find_spec(f"bench.wire.{name}") is not None:
            yield import_module(f"bench.wire.{name}").WIRE


_PEERS = (Nats(), NatsWebSocket(), JetStream(), Mqtt(), Redis())
_OURS = tuple(_ours())
#: The protocols of this broker that are measured.
OURS = tuple(wire.name for wire in _OURS)
WIRES: dict[str, Wire] = {wire.name: wire for wire in (*_PEERS, *_OURS)}

__all__ = ["OURS", "WIRES", "Aim", "Burst", "Wire", "connect"]
