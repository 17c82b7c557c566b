"""TLS for the console: uvicorn's protocol inside connections that the console accepts itself."""

import asyncio
import socket
from collections.abc import Callable
from typing import cast

import uvicorn

from headwater.accepting import Acceptor
from headwater.tls import Encryption, Keyring

# A browser opens six connections at once. Beyond so many handshakes, new ones are refused.
MOST_HANDSHAKES = 256


def accept(
    server: uvicorn.Server, listening: socket.socket, keyring: Keyring, seconds: float
) -> None:
    """Let uvicorn serve inside TLS. Its own way has one context for all times, and nobody counts
    the handshakes."""
    handshakes: set[asyncio.Protocol] = set()

    def make() -> asyncio.Protocol:
        speak = cast(Callable[..., asyncio.Protocol], server.config.http_protocol_class)
        return speak(
            config=server.config,
            server_state=server.server_state,
            app_state=server.lifespan.state,
        )

    def begins(connection: asyncio.Protocol) -> bool:
        if len(handshakes) >= MOST_HANDSHAKES:
            return False
        handshakes.add(connection)
        return True

    encryption = Encryption(keyring, seconds, make=make, begins=begins, ended=handshakes.discard)
    Acceptor([listening], encryption.welcome).start()
