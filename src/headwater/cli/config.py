"""`headwater config`: every setting and where its value comes from. Secrets are masked."""

import json
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from headwater.cli.common import ConfigOption, JsonOption
from headwater.cli.configuration import load_config
from headwater.cli.streams import out
from headwater.config import (
    DECLARED,
    DEFAULT_FILE,
    SETTINGS,
    Array,
    Loaded,
    Origin,
    Pairs,
    Setting,
)
from headwater.config.loading import Shown
from headwater.units import Written


def config(
    file: ConfigOption = None,
    as_json: JsonOption = False,
    as_toml: Annotated[
        bool,
        typer.Option(
            "--toml",
            help="Print a configuration file with comments; settings at their default are "
            "commented out.",
        ),
    ] = False,
) -> None:
    """Show every setting and where its value comes from.

    Secrets are shown as "***".
    """
    if as_json and as_toml:
        raise typer.BadParameter("--json and --toml cannot be used together")
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
    document = {
        "file": str(loaded.file) if loaded.file else None,
        "settings": {
            key: _as_json(Shown(loaded.written(key), loaded.origins[key])) for key in SETTINGS
        },
        "entries": {
            key: _entries(loaded, each)
            for key, each in DECLARED.items()
            if not isinstance(each, Setting)
        },
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _entries(loaded: Loaded, declared: Array | Pairs) -> object:
    if isinstance(declared, Pairs):
        return {name: _as_json(shown) for name, shown in loaded.pairs(declared).items()}
    return [
        {name: _as_json(shown) for name, shown in element.items()}
        for element in loaded.elements(declared)
    ]


def _as_json(shown: Shown) -> dict[str, Written]:
    return {"value": shown.value, "from": shown.origin.kind, "where": shown.origin.text}


def to_toml(loaded: Loaded) -> str:
    return "\n".join(_toml_lines(loaded))


def to_text(loaded: Loaded) -> str:
    rows = [("key", "value", "from"), *((key, value, str(at)) for key, value, at in _rows(loaded))]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{key:{widths[0]}}  {value:{widths[1]}}  {where}" for key, value, where in rows]
    return "\n".join([_about_file(loaded), *lines])


def print_table(loaded: Loaded) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("key", "value", "from")
    for key, value, origin in _rows(loaded):
        style = "dim" if origin.kind == "default" else "bold"
        # As Text, because rich takes brackets in a plain string for its markup.
        table.add_row(Text(key), Text(value), Text(str(origin)), style=style)
    out().print(Text(_about_file(loaded)), table, sep="\n")


def _rows(loaded: Loaded) -> Iterator[tuple[str, str, Origin]]:
    for key, shown in _all_shown(loaded):
        # A text stands as it is; all else looks the same in TOML and JSON.
        text = shown.value if isinstance(shown.value, str) else _toml(shown.value)
        yield key, text, shown.origin


def _all_shown(loaded: Loaded) -> Iterator[tuple[str, Shown]]:
    for key, declared in DECLARED.items():
        match declared:
            case Setting():
                yield key, Shown(loaded.written(key), loaded.origins[key])
            case Array() as array:
                for index, element in enumerate(loaded.elements(array)):
                    yield from ((array.entry(index, name), each) for name, each in element.items())
            case Pairs() as pairs:
                for name, each in loaded.pairs(pairs).items():
                    yield pairs.entry(name), each


def _about_file(loaded: Loaded) -> str:
    if loaded.file == DEFAULT_FILE:
        return f"configuration file: {loaded.file} (in the working directory)"
    return f"configuration file: {loaded.file or 'none'}"


def _toml_lines(loaded: Loaded) -> Iterator[str]:
    table = ""
    for key, declared in DECLARED.items():
        prefix = key.rpartition(".")[0]
        if prefix != table:
            table = prefix
            yield f"[{table}]"
        match declared:
            case Setting() as setting:
                shown = Shown(loaded.written(key), loaded.origins[key])
                yield from _setting_lines(setting, shown)
                yield ""
            case Array() as array:
                yield from _array_lines(array, loaded)
            case Pairs() as pairs:
                yield from _pairs_lines(pairs, loaded)


def _setting_lines(setting: Setting, shown: Shown) -> Iterator[str]:
    # A default that is written down would no longer follow the defaults of later versions.
    is_own = shown.origin.kind != "default" and str(shown.origin) != setting.inherits
    yield f"# {setting.meaning}"
    yield f"# ({setting.kind.words})"
    yield f"{'' if is_own else '# '}{setting.name} = {_toml(shown.value)}"


def _array_lines(array: Array, loaded: Loaded) -> Iterator[str]:
    """The tables of an array; without any, what one would look like."""
    yield f"# {array.meaning}"
    for element in loaded.elements(array):
        yield f"[[{array.key}]]"
        for name, shown in element.items():
            yield from _setting_lines(array.settings[name], shown)
        yield ""
    if not loaded.value(array.key):
        yield f"#[[{array.key}]]"
        for setting in array.settings.values():
            yield f"# {setting.meaning}"
            yield f"# ({setting.kind.words})"
            yield f"#{setting.name} = {_toml(_example(setting, loaded))}"
        yield ""


def _example(setting: Setting, loaded: Loaded) -> Written:
    if setting.inherits is not None:
        return loaded.written(setting.inherits)
    return "" if setting.is_required else setting.kind.write(setting.default)


def _pairs_lines(pairs: Pairs, loaded: Loaded) -> Iterator[str]:
    found = loaded.pairs(pairs)
    yield f"# {pairs.meaning}"
    yield f"# (each name is {pairs.name.words}, each value {pairs.value.words})"
    yield f"{'' if found else '#'}[{pairs.key}]"
    yield from (f"{name} = {_toml(shown.value)}" for name, shown in found.items())
    yield ""


def _toml(value: Written) -> str:
    # TOML escapes as JSON does, and wants one more character escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
