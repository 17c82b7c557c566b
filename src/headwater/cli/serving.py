"""What `headwater serve` does, without the parser of the command line.

That parser takes 11 MB and a tenth of a second, which a broker has no use for. So `parse` reads
what is usually written behind `serve`; all else (`--help`, a mistake) is left to the parser, which
ends up here as well.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from headwater import allocator
from headwater import logging_setup as logs
from headwater.cli.configuration import load_config

if TYPE_CHECKING:
    from headwater.server.server import Server


class LogFormat(StrEnum):
    text = "text"
    json = "json"


@dataclass(slots=True, kw_only=True)
class ServeOptions:
    config: Path | None = None
    data: Path | None = None
    verbose: bool = False
    log_format: LogFormat = LogFormat.text


def parse(words: Sequence[str]) -> ServeOptions | None:
    """The options in the words behind `serve`; None if they are not all plain."""
    options, left = ServeOptions(), list(words)
    while left:
        word, equals, value = left.pop(0).partition("=")
        if word in ("--verbose", "-v") and not equals:
            options.verbose = True
            continue
        if not equals and left:
            value = left.pop(0)
        if not value or value.startswith("-"):
            return None
        if word == "--config":
            options.config = Path(value)
        elif word == "--data":
            options.data = Path(value)
        elif word == "--log-format" and value in list(LogFormat):
            options.log_format = LogFormat(value)
        else:
            return None
    return options


def serve(options: ServeOptions) -> None:
    """Run the broker until SIGTERM or Ctrl-C."""
    allocator.choose()
    from headwater.server import server

    loaded = load_config(options.config, {"data": options.data})
    logs.set_up(options.log_format.value, logging.DEBUG if options.verbose else logging.INFO)
    server.run(loaded.config, announce, options.log_format.value)


def announce(server: "Server") -> None:
    """A table of the listeners and whom they are open to, then `ready`: for people, and for
    programs that wait for it."""
    rows = []
    for name, host, port in server.addresses:
        shown = f"[{host}]" if ":" in host else host
        where = console_url(server, shown, port) if name == "console" else f"{shown}:{port}"
        rows.append((f"{name} on {where}", server.open_to.get(name, "")))
    width = max((len(where) for where, _ in rows), default=0)
    for where, whom in rows:
        print(f"{where:{width}}  open to {whom}")
    print("ready", flush=True)


def console_url(server: "Server", host: str, port: int) -> str:
    """The address to open in a browser on this machine."""
    scheme = "https" if server.console and server.console.secure else "http"
    name = "localhost" if host in ("127.0.0.1", "[::1]", "0.0.0.0", "[::]") else host
    return f"{scheme}://{name}:{port}"
