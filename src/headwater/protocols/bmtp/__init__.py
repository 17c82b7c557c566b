"""BMTP as a pure codec: wire.py has the packets, server.py and client.py the two sides."""

from headwater.protocols.bmtp.client import Client
from headwater.protocols.bmtp.delivering import SKIPS
from headwater.protocols.bmtp.names import Channels
from headwater.protocols.bmtp.server import ServerSession, Settings, spec_of
from headwater.protocols.bmtp.wire import NAME, Delivery, Dialect, EnvelopeName

__all__ = [
    "NAME",
    "SKIPS",
    "Channels",
    "Client",
    "Delivery",
    "Dialect",
    "EnvelopeName",
    "ServerSession",
    "Settings",
    "spec_of",
]
