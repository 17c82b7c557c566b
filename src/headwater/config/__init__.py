"""The configuration: what can be set, and how it is read from file, environment and flags.

Rules that hold here:

- A key is declared once, as a field of one of the dataclasses in `tables.py`, or of a protocol's
  settings, which the registry has. Validation, the documentation and `headwater config` are made
  from that declaration.
- Flags win over environment variables, these over the file, the file over the defaults. Each value
  remembers where it came from. Entries, of which there can be many, come from the file alone.
- Nothing unknown and nothing out of range is accepted silently: a ConfigError names the file and
  line, the variable or the flag.
- A `Config` is complete: it needs no look at the environment, no defaults later on.
- A secret is never shown, by an error or a representation neither.

`headwater/declare.py` has the ways to declare a key, `loading.py` reads, `checks.py` looks at what
depends on more than one key, `lines.py` finds the line of a key.
"""

from headwater.config.lines import KeyPath, Lines
from headwater.config.loading import DEFAULT_FILE, FILE_VARIABLE, Loaded, Origin, load
from headwater.config.tables import (
    DECLARED,
    SETTINGS,
    TABLES,
    Config,
    Limits,
    Listen,
    ListenerOptions,
    Log,
    Tls,
)
from headwater.declare import Array, Pairs, Setting

__all__ = [
    "DECLARED",
    "DEFAULT_FILE",
    "FILE_VARIABLE",
    "SETTINGS",
    "TABLES",
    "Array",
    "Config",
    "KeyPath",
    "Limits",
    "Lines",
    "Listen",
    "ListenerOptions",
    "Loaded",
    "Log",
    "Origin",
    "Pairs",
    "Setting",
    "Tls",
    "load",
]
