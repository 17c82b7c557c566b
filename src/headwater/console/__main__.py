"""The console's process. The broker starts it with a socket that listens already, and with a pipe
as standard input: when that ends, so has the broker, and this process ends too."""

import argparse
import asyncio
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from headwater.console.app import make_app
from headwater.console.connections import ConnectionBounds, bounded
from headwater.console.encryption import accept
from headwater.console.settings import ConsoleSettings
from headwater.logging_setup import FORMATS, set_up
from headwater.tls import Keyring, TlsFiles

# The broker comes first.
NICE = 10
# Open streams have so long to end.
FAREWELL_SECONDS = 1
# Bytes of the head of a request: its line and its headers.
MOST_HEAD = 32 * 1024
# Files that the process needs besides those of its connections.
OWN_FILES = 64


def parse(arguments: Sequence[str] | None = None) -> tuple[ConsoleSettings, argparse.Namespace]:
    parser = argparse.ArgumentParser(prog="headwater.console", description=__doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="the broker's data directory")
    add("--fd", type=int, required=True, help="a socket that listens")
    add("--host", required=True, help="the address it listens on")
    add("--port", type=int, required=True)
    add("--name", action="append", default=[], help="a name it may be called by")
    add("--anonymous", action="store_true", help="for anyone, while there are no users")
    add("--session-hours", type=float, default=12.0)
    add("--connections", type=int, default=1000, help="how many there may be")
    add(
        "--handshake-seconds",
        type=float,
        default=10.0,
        help="for the head of a request",
    )
    add("--unfinished-seconds", type=float, default=30.0, help="for its body, and its answer")
    add("--certificate", type=Path, help="for TLS")
    add("--key", type=Path, help="for TLS")
    add("--client-ca", type=Path, help="who signs the certificates of clients")
    add("--certificate-required", action="store_true", help="of clients")
    add("--log-format", choices=FORMATS, default="text")
    given = parser.parse_args(arguments)
    tls = given.certificate and TlsFiles(
        certificate=given.certificate,
        key=given.key,
        client_ca=given.client_ca,
        required=given.certificate_required,
    )
    settings = ConsoleSettings(
        data=given.data,
        host=given.host,
        port=given.port,
        names=tuple(given.name),
        anonymous=given.anonymous,
        session_hours=given.session_hours,
        connections=given.connections,
        handshake_seconds=given.handshake_seconds,
        unfinished_seconds=given.unfinished_seconds,
        tls=tls,
    )
    return settings, given


def main() -> None:
    settings, given = parse()
    set_up(given.log_format, logging.WARNING)
    logging.getLogger("headwater").setLevel(logging.INFO)
    connection, connections = bounded(_bounds(settings))
    config = uvicorn.Config(
        make_app(settings, connections),
        http=connection,
        ws="none",  # nothing here speaks it, and its connections would not be bounded
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=FAREWELL_SECONDS,
        h11_max_incomplete_event_size=MOST_HEAD,
    )
    os.nice(NICE)
    listening = socket.socket(fileno=given.fd)
    threading.Thread(target=_end_with_the_broker, daemon=True).start()
    # Ctrl-C is for the broker, which then ends this.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # uvloop where it is installed: it leaves more of the machine to the broker.
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(_Server(config, settings).serve(sockets=[listening]))


def _bounds(settings: ConsoleSettings) -> ConnectionBounds:
    """No more connections than the process may have open files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = settings.connections
    if files != resource.RLIM_INFINITY:
        connections = min(connections, max(files - OWN_FILES, files // 2))
    return ConnectionBounds(
        connections=connections,
        head_seconds=settings.handshake_seconds,
        unfinished_seconds=settings.unfinished_seconds,
    )


class _Server(uvicorn.Server):
    """Without uvicorn's own ideas about signals, and about TLS."""

    def __init__(self, config: uvicorn.Config, settings: ConsoleSettings) -> None:
        super().__init__(config)
        self._settings = settings

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._settings.tls is None or not sockets:
            await super().startup(sockets)
            return
        keyring = Keyring("console", self._settings.tls)
        # The broker watches the files.
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, keyring.reload)
        await super().startup([])
        accept(self, sockets[0], keyring, self._settings.handshake_seconds)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _end_with_the_broker() -> None:
    while sys.stdin.buffer.read(1024):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
