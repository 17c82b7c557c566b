"""PSMB as a pure codec: wire.py has the bytes, server.py and client.py the two sides."""

from headwater.protocols.psmb.client import PsmbClientSession
from headwater.protocols.psmb.server import PsmbService, PsmbSession, PsmbState
from headwater.protocols.psmb.settings import PsmbSettings
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
    "PsmbClientSession",
    "PsmbService",
    "PsmbSession",
    "PsmbSettings",
    "PsmbState",
    "encode_messages",
    "message_header",
]
