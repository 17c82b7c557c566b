"""Prism Notify as a pure codec on WebSocket.

names.py says what Prism's names are to the broker, signature.py and handshake.py who may connect,
settings.py what a queue is, wire.py has the bytes, server.py and client.py the two sides.
"""

from headwater.protocols.prism.client import Client, signed_target
from headwater.protocols.prism.handshake import PATHS
from headwater.protocols.prism.names import DEFAULT_QUEUE, filter_of, key_of, topic_of
from headwater.protocols.prism.server import UNKNOWN_TAGS, ServerSession
from headwater.protocols.prism.settings import QueueSettings, Settings, queue_spec, spec_of
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
    "UNKNOWN_TAGS",
    "Client",
    "QueueSettings",
    "ServerSession",
    "Settings",
    "ack",
    "consume",
    "filter_of",
    "key_of",
    "publish",
    "queue_spec",
    "sign",
    "signed_target",
    "spec_of",
    "topic_of",
]
