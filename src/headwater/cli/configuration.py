"""The configuration, as commands read it."""

from collections.abc import Mapping
from pathlib import Path

from headwater import config
from headwater.cli.streams import warn


def load_config(
    file: Path | None = None, flags: Mapping[str, object] | None = None
) -> config.Loaded:
    """Load the configuration, and warn of ignored keys. A flag that is None was not given."""
    given = {key: str(value) for key, value in (flags or {}).items() if value is not None}
    loaded = config.load(file, given)
    for warning in loaded.warnings:
        warn(warning)
    return loaded


def data_directory(data: Path | None = None, file: Path | None = None) -> Path:
    """The data directory. With the flag, the configuration is not read, so it may be broken."""
    return data if data is not None else load_config(file).config.data
