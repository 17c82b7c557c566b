"""`headwater serve`: run the broker."""

import logging
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from headwater import logging_setup as logs
from headwater.cli import common

if TYPE_CHECKING:
    from headwater.server.server import Server


class LogFormat(StrEnum):
    text = "text"
    json = "json"


def serve(
    config: common.ConfigOption = None,
    data: common.DataOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log each connection, and why it ended.")
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="Format of the lines on standard error.")
    ] = LogFormat.text,
) -> None:
    """Run the broker until SIGTERM or Ctrl-C."""
    from headwater.server import server

    loaded = common.load_config(config, {"data": data})
    logs.set_up(log_format.value, logging.DEBUG if verbose else logging.INFO)
    server.run(loaded.config, announce, log_format.value)


def announce(server: "Server") -> None:
    """One line per listener, then `ready`: for people, and for programs that wait for it."""
    for name, host, port in server.addresses:
        shown = f"[{host}]" if ":" in host else host
        if name == "console":
            print(f"console on {console_url(server, shown, port)}")
        else:
            print(f"{name} on {shown}:{port}")
    print("ready", flush=True)


def console_url(server: "Server", host: str, port: int) -> str:
    """The address to open in a browser on this machine."""
    scheme = "https" if server.console and server.console.secure else "http"
    name = "localhost" if host in ("127.0.0.1", "[::1]", "0.0.0.0", "[::]") else host
    return f"{scheme}://{name}:{port}"
