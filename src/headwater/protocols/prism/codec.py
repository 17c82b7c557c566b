"""Prism Notify as a pure codec on WebSocket.

names.py says what Prism's names are to the broker, signature.py and handshake.py who may connect,
settings.py what a queue is, wire.py has the bytes, server.py and client.py the two sides.
"""

from headwater.protocols.prism import PATHS
from headwater.protocols.prism.client import PrismClientSession, signed_target
from headwater.protocols.prism.names import filter_of, key_of, topic_of
from headwater.protocols.prism.server import PrismSession
from headwater.protocols.prism.service import PrismService
from headwater.protocols.prism.settings import (
    DEFAULT_QUEUE,
    PrismApp,
    PrismQueue,
    PrismSettings,
)
from headwater.protocols.prism.signature import EXAMPLE_SECRETS, sign
from headwater.protocols.prism.wire import (
    BODY_BYTES,
    COMMAND_BYTES,
    KEY_BYTES,
    NAME,
    ack,
    consume,
    publish,
)

__all__ = [
    "BODY_BYTES",
    "COMMAND_BYTES",
    "DEFAULT_QUEUE",
    "EXAMPLE_SECRETS",
    "KEY_BYTES",
    "NAME",
    "PATHS",
    "PrismApp",
    "PrismClientSession",
    "PrismQueue",
    "PrismService",
    "PrismSession",
    "PrismSettings",
    "ack",
    "consume",
    "filter_of",
    "key_of",
    "publish",
    "sign",
    "signed_target",
    "topic_of",
]
