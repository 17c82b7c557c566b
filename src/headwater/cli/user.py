"""`headwater user`: people and programs that may use the broker and its console."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli import keeping
from headwater.cli.common import ConfigOption, DataOption, JsonOption
from headwater.cli.configuration import data_directory
from headwater.cli.output import plain_table, tell, tell_list, time_of
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(
    help="Manage users: of the protocols that have them, of Flight, of the console and its API.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name of the user: 1 to 64 letters, digits, '_', '.' and '-'."
    ),
]


_ROLE_HELP = (
    "client: connects by a protocol, and has no console; viewer: sees everything in the console "
    "except message content; reader: also message content; operator: may also publish, redrive, "
    "delete dead letters, close connections and manage users. Any other name is a role of your "
    "own, which may do what 'headwater access allow role:NAME ...' says."
)


@app.command()
def add(
    name: NameArgument,
    role: Annotated[str, typer.Option(help=_ROLE_HELP)] = "operator",
    token: Annotated[
        bool, typer.Option("--token", help="Create a token, for a program, instead of a password.")
    ] = False,
    certificate: Annotated[
        bool,
        typer.Option(
            "--certificate",
            help="No password and no token: the user shows a certificate with this name.",
        ),
    ] = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a user. The password is asked for, or read from standard input."""
    directory = data_directory(data, config)
    password = None if token or certificate else _ask_password(name)
    keeping.do(directory, "user.add", name=name, role=role, password=password)
    made = keeping.do(directory, "user.token", name=name)["token"] if token else None
    said = f"added {name} as {role}"
    if made is not None:
        said = f"{said}\n{_about_token(made)}"
    tell(as_json, {"name": name, "role": role, "token": made}, said)


@app.command()
def change(
    name: NameArgument,
    role: Annotated[str | None, typer.Option(help=f"The new role. {_ROLE_HELP}")] = None,
    password: Annotated[
        bool,
        typer.Option("--password", help="Ask for a new password, or read it from standard input."),
    ] = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a user another role or another password. With another role, its connections end."""
    if role is None and not password:
        raise HeadwaterError("say what to change: --role ROLE or --password")
    directory = data_directory(data, config)
    new = _ask_password(name) if password else None
    changed = keeping.do(directory, "user.change", name=name, role=role, password=new)
    tell(as_json, changed, f"changed {name}")


@app.command("list")
def list_users(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List the users."""
    users = keeping.do(data_directory(data, config), "user.list")
    tell_list(as_json, users, "There are no users; 'headwater user add NAME' adds one.", _table)


@app.command()
def remove(
    name: NameArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a user. Its connections, sessions and tokens end at once."""
    keeping.do(data_directory(data, config), "user.remove", name=name)
    tell(as_json, {"removed": name}, f"removed {name}")


@app.command()
def token(
    name: NameArgument,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Make all tokens of the user void instead.")
    ] = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token for a user; it is shown only once."""
    directory = data_directory(data, config)
    if revoke:
        done = keeping.do(directory, "user.revoke", name=name)
        tell(as_json, done, f"{done['removed']} tokens of {name} are void")
        return
    made = keeping.do(directory, "user.token", name=name)["token"]
    tell(as_json, {"name": name, "token": made}, _about_token(made))


def _table(users: Sequence[dict[str, Any]]) -> "Table":
    table = plain_table("name", "role", "created", "tokens", left=3)
    for each in users:
        created = f"{time_of(each['created'])[:19]}Z"
        table.add_row(each["name"], each["role"], created, str(each["tokens"]))
    return table


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
