"""`headwater app`: clients that may connect, of protocols that want to know who they are.

The commands ask a running broker, so that a change takes effect at once. Without one, they change
its state on disk.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.actions import APP_ROLE
from headwater.cli.common import ConfigOption, DataOption, JsonOption
from headwater.cli.configuration import data_directory
from headwater.cli.output import plain_table, tell, tell_list, time_of
from headwater.registry import REGISTRY

if TYPE_CHECKING:
    from rich.table import Table

_WITH_APPS = [each for each in REGISTRY.values() if each.has_apps]
_TITLES = " and ".join(each.title for each in _WITH_APPS)

app = typer.Typer(
    help=f"Manage apps: the clients of {_TITLES} that may connect.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The client_id of the app: 1 to 64 letters, digits, '_', '.' and '-'.",
    ),
]


ProtocolName = StrEnum("ProtocolName", {each.name: each.name for each in _WITH_APPS})  # type: ignore[misc]

_FIRST = ProtocolName(_WITH_APPS[0].name)


@app.command()
def add(
    name: NameArgument,
    protocol: Annotated[
        ProtocolName, typer.Option(help="The protocol that its clients speak.")
    ] = _FIRST,
    role: Annotated[
        str, typer.Option(help="Its role: rules say what the apps of a role may do.")
    ] = APP_ROLE,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create an app and its secret; the secret is shown only once."""
    directory = data_directory(data, config)
    made = _do(directory, "add", name=name, protocol=protocol.value, role=role)
    secret = made["client_secret"]
    tell(
        as_json,
        {"client_id": name, "client_secret": secret, "protocol": protocol.value, "role": role},
        f"client_id      {name}\n"
        f"client_secret  {secret}\n"
        "Store the secret now: it is not shown again. "
        f"To try it: {REGISTRY[protocol.value].app_example.format(name=name, secret=secret)}",
    )


@app.command("list")
def list_apps(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List the apps created with `headwater app add`.

    `headwater config` lists the apps of the configuration file.
    """
    apps = _do(data_directory(data, config), "list")
    tell_list(as_json, apps, "There are no apps; 'headwater app add NAME' creates one.", _table)


@app.command()
def remove(
    name: NameArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove an app. Its clients can no longer connect; its queues stay."""
    _do(data_directory(data, config), "remove", name=name)
    tell(as_json, {"removed": name}, f"removed {name}")


def _table(apps: Sequence[dict[str, Any]]) -> "Table":
    table = plain_table("client_id", "protocol", "role", "created", left=4)
    for each in apps:
        created = f"{time_of(each['created'])[:19]}Z"
        table.add_row(each["client_id"], each["protocol"], each["role"], created)
    return table


def _do(directory: Path, what: str, **arguments: Any) -> Any:
    from headwater.control import NoBroker, call

    try:
        return call(directory, f"app.{what}", **arguments)
    except NoBroker:
        return _do_on_disk(directory, what, **arguments)


def _do_on_disk(
    directory: Path, what: str, name: str = "", protocol: str = "", role: str = APP_ROLE
) -> Any:
    """Do on disk what the broker's handlers do."""
    from headwater.identity.apps import FILE, Apps

    apps = Apps(directory / FILE)
    match what:
        case "add":
            return {"client_id": name, "client_secret": apps.add(name, protocol, role)}
        case "list":
            return [app.summary() for app in apps.list()]
        case "remove":
            return apps.remove(name)
