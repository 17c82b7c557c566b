"""CrystalConnector as a pure codec: crystal.proto has its messages, wire.py the bytes of those that
are many, names.py what a channel is called elsewhere, server.py and client.py the two sides."""

from headwater.protocols.crystal.client import Client
from headwater.protocols.crystal.crystal_pb2 import ALL, INCOMING, NONE, OUTGOING
from headwater.protocols.crystal.names import channel_of, topic_of
from headwater.protocols.crystal.server import ServerSession, Settings
from headwater.protocols.crystal.wire import NAME

__all__ = [
    "ALL",
    "INCOMING",
    "NAME",
    "NONE",
    "OUTGOING",
    "Client",
    "ServerSession",
    "Settings",
    "channel_of",
    "topic_of",
]
