"""CrystalConnector as a pure codec: crystal.proto has its messages, wire.py the bytes of those that
are many, names.py what a channel is called elsewhere, server.py and client.py the two sides."""

from headwater.protocols.crystal import ALL, INCOMING, NONE, OUTGOING
from headwater.protocols.crystal.client import CrystalClientSession
from headwater.protocols.crystal.names import NAME, channel_of, topic_of
from headwater.protocols.crystal.server import CrystalSession
from headwater.protocols.crystal.service import CrystalService
from headwater.protocols.crystal.settings import CrystalSettings

__all__ = [
    "ALL",
    "INCOMING",
    "NAME",
    "NONE",
    "OUTGOING",
    "CrystalClientSession",
    "CrystalService",
    "CrystalSession",
    "CrystalSettings",
    "channel_of",
    "topic_of",
]
