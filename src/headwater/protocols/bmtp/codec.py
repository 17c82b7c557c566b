"""BMTP as a pure codec: wire.py has the packets, server.py and client.py the two sides."""

from headwater.protocols.bmtp.client import BmtpClientSession
from headwater.protocols.bmtp.names import Channels
from headwater.protocols.bmtp.server import BmtpService, BmtpSession
from headwater.protocols.bmtp.settings import BmtpSettings, Delivery, Dialect, EnvelopeName
from headwater.protocols.bmtp.wire import NAME

__all__ = [
    "NAME",
    "BmtpClientSession",
    "BmtpService",
    "BmtpSession",
    "BmtpSettings",
    "Channels",
    "Delivery",
    "Dialect",
    "EnvelopeName",
]
