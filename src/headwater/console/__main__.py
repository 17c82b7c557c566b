"""The console's process. The broker starts it with a socket that listens already, and with a pipe
as standard input: when that ends, so has the broker, and this process ends too."""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from headwater.console.app import make_app
from headwater.console.settings import ConsoleSettings
from headwater.logging_setup import FORMATS, set_up

# The broker comes first.
NICE = 10
# Open streams have so long to end.
FAREWELL_SECONDS = 1


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
    add("--certificate", type=Path, help="for TLS")
    add("--key", type=Path, help="for TLS")
    add("--log-format", choices=FORMATS, default="text")
    given = parser.parse_args(arguments)
    settings = ConsoleSettings(
        data=given.data,
        host=given.host,
        port=given.port,
        names=tuple(given.name),
        anonymous=given.anonymous,
        session_hours=given.session_hours,
        certificate=given.certificate,
        key=given.key,
    )
    return settings, given


def main() -> None:
    settings, given = parse()
    set_up(given.log_format, logging.WARNING)
    logging.getLogger("headwater").setLevel(logging.INFO)
    config = uvicorn.Config(
        make_app(settings),
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=FAREWELL_SECONDS,
        limit_concurrency=1000,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
    )
    os.nice(NICE)
    listening = socket.socket(fileno=given.fd)
    threading.Thread(target=_end_with_the_broker, daemon=True).start()
    # Ctrl-C is for the broker, which then ends this.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # uvloop where it is installed: it leaves more of the machine to the broker.
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(_Server(config).serve(sockets=[listening]))


class _Server(uvicorn.Server):
    """Without uvicorn's own ideas about signals."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _end_with_the_broker() -> None:
    while sys.stdin.buffer.read(1024):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
