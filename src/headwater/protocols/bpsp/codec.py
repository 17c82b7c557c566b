"""BPSP as a pure codec: wire.py has the bytes, server.py and client.py the two sides."""

from headwater.protocols.bpsp.client import BpspClientSession
from headwater.protocols.bpsp.server import BpspService, BpspSession
from headwater.protocols.bpsp.wire import (
    ACK,
    CONNECT,
    DEFAULT_TAG,
    ECHO,
    ERR,
    INFO,
    MSG,
    NAME,
    OK,
    PUB,
    STATUS_OF,
    SUB,
    UNSUB,
    format_headers,
    frame,
    parse_headers,
)

__all__ = [
    "ACK",
    "CONNECT",
    "DEFAULT_TAG",
    "ECHO",
    "ERR",
    "INFO",
    "MSG",
    "NAME",
    "OK",
    "PUB",
    "STATUS_OF",
    "SUB",
    "UNSUB",
    "BpspClientSession",
    "BpspService",
    "BpspSession",
    "format_headers",
    "frame",
    "parse_headers",
]
