"""`headwater config`: what is set, and where it comes from."""

import json
import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Annotated

import typer

from headwater.cli.common import ConfigOption, load_config, out
from headwater.config import DEFAULT_FILE, SETTINGS, Listen, Loaded
from headwater.units import Scalar


def config(
    file: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    as_toml: Annotated[
        bool,
        typer.Option(
            "--toml",
            help="Print it as a configuration file with comments; what is at its default is "
            "commented out.",
        ),
    ] = False,
) -> None:
    """Show the configuration in effect, and where each value comes from."""
    if as_json and as_toml:
        raise typer.BadParameter("--json and --toml exclude each other")
    loaded = load_config(file)
    if as_json:
        print(to_json(loaded))
    elif as_toml:
        print(to_toml(loaded))
    elif sys.stdout.isatty():
        print_table(loaded)
    else:
        print(to_text(loaded))


def to_json(loaded: Loaded) -> str:
    settings = {
        key: {
            "value": loaded.written(key),
            "from": loaded.origins[key].kind,
            "where": loaded.origins[key].text,
        }
        for key in SETTINGS
    }
    document = {"file": str(loaded.file) if loaded.file else None, "settings": settings}
    return json.dumps(document, indent=2, ensure_ascii=False)


def to_toml(loaded: Loaded) -> str:
    return "\n".join(_toml_lines(loaded))


def to_text(loaded: Loaded) -> str:
    rows = [("key", "value", "from"), *_rows(loaded)]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{key:{widths[0]}}  {value:{widths[1]}}  {where}" for key, value, where in rows]
    return "\n".join([_about_file(loaded), *lines])


def print_table(loaded: Loaded) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("key", "value", "from")
    for row in _rows(loaded):
        style = "dim" if loaded.origins[row[0]].kind == "default" else "bold"
        # As Text, because rich takes brackets in a plain string for its markup.
        table.add_row(*map(Text, row), style=style)
    out().print(Text(_about_file(loaded)), table, sep="\n")


def keys_without_effect() -> set[str]:
    """Listeners can be configured before there is a version that has them."""
    from headwater.protocols import REGISTRY

    return {f"listen.{each.name}" for each in fields(Listen) if each.name not in REGISTRY}


def _rows(loaded: Loaded) -> Iterator[tuple[str, str, str]]:
    without_effect = keys_without_effect()
    for key in SETTINGS:
        remark = " (not in this version)" if key in without_effect else ""
        yield key, str(loaded.written(key)), f"{loaded.origins[key]}{remark}"


def _about_file(loaded: Loaded) -> str:
    if loaded.file == DEFAULT_FILE:
        return f"configuration file: {loaded.file} (in the working directory)"
    return f"configuration file: {loaded.file or 'none'}"


def _toml_lines(loaded: Loaded) -> Iterator[str]:
    table = ""
    for key, setting in SETTINGS.items():
        prefix, _, name = key.rpartition(".")
        if prefix != table:
            table = prefix
            yield f"[{table}]"
        # A default that is written down would no longer follow the defaults of later versions.
        mark = "# " if loaded.origins[key].kind == "default" else ""
        yield f"# {setting.meaning}"
        yield f"# ({setting.kind.words})"
        yield f"{mark}{name} = {_toml(loaded.written(key))}"
        yield ""


def _toml(value: Scalar) -> str:
    if not isinstance(value, str):
        return str(value)
    # TOML escapes as JSON does, and wants one more character escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
