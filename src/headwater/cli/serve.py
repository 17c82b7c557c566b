"""`headwater serve`: run the broker."""

import logging
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli import common

if TYPE_CHECKING:
    from headwater.server import Server


def serve(
    config: common.ConfigOption = None,
    data: common.DataOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log connections that end, and why.")
    ] = False,
) -> None:
    """Run the broker until it is told to stop (SIGTERM or Ctrl-C)."""
    from headwater import server

    loaded = common.load_config(config, {"data": data})
    for name in loaded.unserved(common.served_listeners()):
        common.warn(f"[listen] {name} is set, but this version does not serve {name} yet")
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("asyncio").setLevel(logging.INFO)
    server.run(loaded.config, announce)


def announce(server: "Server") -> None:
    """One line per listener, then `ready`: for people, and for programs that wait for it."""
    for name, host, port in server.addresses:
        shown = f"[{host}]" if ":" in host else host
        print(f"{name} on {shown}:{port}")
    print("ready", flush=True)
