"""WebSocket (RFC 6455) as pure code: frames, the opening handshake, and the base of both sides.

It has no protocol of its own in the registry; the codecs that travel in WebSocket messages build
on it.
"""

from headwater.protocols.websocket.client import WebSocketClient
from headwater.protocols.websocket.frames import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    CloseCode,
    Failed,
    FrameReader,
    Message,
    TooLarge,
    close_frame,
    frame,
    frames,
    masked_frame,
    masked_frames,
)
from headwater.protocols.websocket.handshake import (
    AS_SENT,
    HttpRefusal,
    Request,
    check_upgrade,
    read_request,
    switching,
)
from headwater.protocols.websocket.server import WebSocketSession

__all__ = [
    "AS_SENT",
    "BINARY",
    "CLOSE",
    "PING",
    "PONG",
    "TEXT",
    "CloseCode",
    "Failed",
    "FrameReader",
    "HttpRefusal",
    "Message",
    "Request",
    "TooLarge",
    "WebSocketClient",
    "WebSocketSession",
    "check_upgrade",
    "close_frame",
    "frame",
    "frames",
    "masked_frame",
    "masked_frames",
    "read_request",
    "switching",
]
