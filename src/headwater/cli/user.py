"""`headwater user`: users of the console and its API.

They are in a file in the data directory. A running console notices changes.
"""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.common import ConfigOption, DataOption, JsonOption
from headwater.cli.configuration import data_directory
from headwater.cli.output import plain_table, tell, tell_list, time_of

if TYPE_CHECKING:
    from rich.table import Table

    from headwater.identity.users import User, Users

app = typer.Typer(
    help="Manage the users of the console and its API.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name of the user: 1 to 64 letters, digits, '_', '.' and '-'."
    ),
]


class RoleName(StrEnum):
    viewer = "viewer"
    reader = "reader"
    operator = "operator"


@app.command()
def add(
    name: NameArgument,
    role: Annotated[
        RoleName,
        typer.Option(
            help="viewer: sees everything except message content; reader: also message content; "
            "operator: may also publish, redrive, delete dead letters, close connections and "
            "manage users."
        ),
    ] = RoleName.operator,
    token: Annotated[
        bool, typer.Option("--token", help="Create a token, for a program, instead of a password.")
    ] = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a user. The password is asked for, or read from standard input."""
    users = _users(data_directory(data, config))
    users.add(name, role.value, None if token else _ask_password(name))
    made = users.add_token(name) if token else None
    said = f"added {name} as {role.value}"
    if made is not None:
        said = f"{said}\n{_about_token(made)}"
    tell(as_json, {"name": name, "role": role.value, "token": made}, said)


@app.command("list")
def list_users(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List the users."""
    users = [_summary(each) for each in _users(data_directory(data, config)).all().values()]
    tell_list(as_json, users, "There are no users; 'headwater user add NAME' adds one.", _table)


@app.command()
def remove(
    name: NameArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a user. Its sessions and tokens end at once."""
    _users(data_directory(data, config)).remove(name)
    tell(as_json, {"removed": name}, f"removed {name}")


@app.command()
def token(
    name: NameArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token for a user; it is shown only once."""
    made = _users(data_directory(data, config)).add_token(name)
    tell(as_json, {"name": name, "token": made}, _about_token(made))


def _summary(user: "User") -> dict[str, Any]:
    """A user without password and tokens."""
    return {
        "name": user.name,
        "role": user.role.name,
        "created": user.created,
        "tokens": len(user.tokens),
    }


def _table(users: Sequence[dict[str, Any]]) -> "Table":
    table = plain_table("name", "role", "created", "tokens", left=3)
    for each in users:
        created = f"{time_of(each['created'])[:19]}Z"
        table.add_row(each["name"], each["role"], created, str(each["tokens"]))
    return table


def _users(directory: Path) -> "Users":
    from headwater.identity.users import FILE, Users

    return Users(directory / FILE)


def _ask_password(name: str) -> str:
    if sys.stdin.isatty():
        password: str = typer.prompt(
            f"password for {name}", hide_input=True, confirmation_prompt=True
        )
        return password
    return sys.stdin.readline().rstrip("\r\n")


def _about_token(token: str) -> str:
    return (
        f"token  {token}\n"
        "Store the token now: it is not shown again. To try it: "
        f"curl -H 'Authorization: Bearer {token}' http://localhost:8090/api/v1/overview"
    )
