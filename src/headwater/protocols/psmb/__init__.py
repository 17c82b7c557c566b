"""PSMB as a pure codec: wire.py has the bytes, server.py and client.py the two sides."""

from headwater.protocols.psmb.client import Client
from headwater.protocols.psmb.server import ServerSession, Settings, State
from headwater.protocols.psmb.wire import (
    BAD_COMMAND,
    BYE,
    FAILED,
    NAME,
    NIL,
    NOP,
    OK,
    UNSUPPORTED,
    VERSIONS,
    encode_messages,
    message_header,
)

__all__ = [
    "BAD_COMMAND",
    "BYE",
    "FAILED",
    "NAME",
    "NIL",
    "NOP",
    "OK",
    "UNSUPPORTED",
    "VERSIONS",
    "Client",
    "ServerSession",
    "Settings",
    "State",
    "encode_messages",
    "message_header",
]
