"""A project: a directory with spark-pipeline.yml, which describes the pipeline.

    name: shop
    storage: storage                     where tables and checkpoints are, from here
    libraries:
      - glob:
          include: transformations/**
    configuration:
      headwater.servers: localhost:8815

It is the file of Spark Declarative Pipelines. Settings `headwater.*` are Headwater's own,
all others are Spark's. The broker's address comes from a flag, from this file, from Headwater's
configuration, or is localhost, in this order.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import yaml

from headwater import config
from headwater.errors import ConfigError
from headwater.pipeline.project.paths import CHECKPOINTS
from headwater.pipeline.project.settings import DEFAULT_SERVERS, KNOWN, PREFIX
from headwater.units import did_you_mean

FILES = ("spark-pipeline.yml", "spark-pipeline.yaml")
FORMATS = ("delta-rs", "delta", "iceberg", "parquet")
_KEYS = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")


@dataclass(frozen=True, slots=True)
class Project:
    """The content of spark-pipeline.yml, with paths made absolute."""

    file: Path
    name: str
    storage: Path
    includes: tuple[str, ...]
    configuration: Mapping[str, str]
    #: Where a Spark Connect server keeps the tables; its own default if None.
    catalog: str | None = None
    database: str | None = None

    @property
    def root(self) -> Path:
        return self.file.parent

    @property
    def tables(self) -> Path:
        return self.storage / "tables"

    @property
    def checkpoints(self) -> Path:
        return self.storage / CHECKPOINTS

    @property
    def state(self) -> Path:
        return self.storage / "state"

    @property
    def servers(self) -> str:
        return self.setting("servers", DEFAULT_SERVERS)

    def setting(self, name: str, default: str = "") -> str:
        return self.configuration.get(PREFIX + name) or default

    def definitions(self) -> list[Path]:
        """The files with definitions, in order of their names."""
        found: set[Path] = set()
        for include in self.includes:
            pattern = f"{include}/*" if include.endswith("/**") else include
            found |= {each for each in self.root.glob(pattern) if each.is_file()}
        kept = [each for each in found if each.suffix in (".py", ".sql")]
        return sorted(each for each in kept if "__pycache__" not in each.parts)


def find(directory: Path | None = None) -> Path:
    """The project file of a directory, or of the nearest one above the working directory."""
    start = (directory or Path.cwd()).resolve()
    for place in [start] if directory is not None else [start, *start.parents]:
        for name in FILES:
            if (place / name).is_file():
                return place / name
    where = f"in {start}" if directory is not None else f"in {start} or above it"
    raise ConfigError(
        f"there is no {FILES[0]} {where}: make a project with `headwater pipeline init DIR`, or "
        "say where it is with --project DIR"
    )


def load(directory: Path | None = None, servers: str | None = None) -> Project:
    """Read the project. `servers`: the broker's address from a flag."""
    file = find(directory)
    reader = _YamlReader(file)
    top = reader.mapping(reader.root, "the file")
    for key, node in top.items():
        if key not in _KEYS:
            reader.fail(node, f'there is no key "{key}"{did_you_mean(key, _KEYS)}')
    for key in ("name", "storage"):
        if key not in top:
            reader.fail(reader.root, f'the key "{key}" is missing')
    configuration = reader.configuration(top.get("configuration"))
    configuration[f"{PREFIX}servers"] = _servers(servers, configuration)
    _resolve_paths(configuration, file.parent)
    storage = _place(reader.text(top["storage"], "storage"), file.parent)
    configuration[f"{PREFIX}storage"] = str(storage)  # for definitions that keep something there
    return Project(
        file=file,
        name=reader.text(top["name"], "name"),
        storage=storage,
        includes=reader.includes(top.get("libraries")),
        configuration=configuration,
        catalog=reader.optional_text(top, "catalog"),
        # Spark knows both words, and this order.
        database=reader.optional_text(top, "database") or reader.optional_text(top, "schema"),
    )


def _servers(flag: str | None, configuration: Mapping[str, str]) -> str:
    if found := flag or configuration.get(f"{PREFIX}servers"):
        return found
    if os.environ.get(config.FILE_VARIABLE):
        listen = config.load(None, {}).config.listen.flight
        if listen is not None:
            host = "localhost" if listen.host in ("0.0.0.0", "::") else listen.host
            return f"{host}:{listen.port}"
    return DEFAULT_SERVERS


def _resolve_paths(configuration: dict[str, str], root: Path) -> None:
    """Definitions may run anywhere."""
    for name in ("contracts", "tls.caFile", "tls.certFile", "tls.keyFile"):
        if written := configuration.get(PREFIX + name):
            configuration[PREFIX + name] = str(root / written)
    configuration.setdefault(f"{PREFIX}contracts", str(root / "contracts"))


def _place(written: str, root: Path) -> Path:
    found = urlparse(written)
    if found.scheme == "file":
        return Path(unquote(found.path))
    if found.scheme:
        raise ConfigError(
            f"storage must be a directory of this machine, or one that all machines share: "
            f"{written} is neither"
        )
    return (root / written).resolve()


class _YamlReader:
    """The parts of a YAML file; errors name the line."""

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self.root: Any = yaml.compose(file.read_text(), Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise ConfigError(f"{file.name}, line {line}: {error.problem}") from None
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"{file}: {error}") from None
        if self.root is None:
            raise ConfigError(f"{file.name} is empty: it needs a name and a storage")

    def fail(self, node: Any, sentence: str) -> None:
        raise ConfigError(f"{self._file.name}, line {node.start_mark.line + 1}: {sentence}")

    def mapping(self, node: Any, what: str) -> dict[str, Any]:
        if not isinstance(node, yaml.MappingNode):
            self.fail(node, f"{what} must have keys and values")
        return {str(key.value): value for key, value in node.value}

    def text(self, node: Any, what: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or not str(node.value).strip():
            self.fail(node, f'"{what}" must be a text')
        return str(node.value)

    def optional_text(self, nodes: dict[str, Any], key: str) -> str | None:
        node = nodes.get(key)
        return None if node is None or node.tag.endswith(":null") else self.text(node, key)

    def configuration(self, node: Any) -> dict[str, str]:
        if node is None:
            return {}
        nodes = self.mapping(node, '"configuration"')
        for key, value in nodes.items():
            name = key.removeprefix(PREFIX)
            if key.startswith(PREFIX) and name not in KNOWN:
                known = [PREFIX + each for each in KNOWN]
                self.fail(value, f'there is no setting "{key}"{did_you_mean(key, known)}')
        found = {key: self.text(value, key) for key, value in nodes.items()}
        kind = found.get(f"{PREFIX}format", FORMATS[0])
        if kind not in FORMATS:
            wrong = nodes[f"{PREFIX}format"]
            self.fail(wrong, f'headwater.format must be one of {", ".join(FORMATS)}, not "{kind}"')
        return found

    def includes(self, node: Any) -> tuple[str, ...]:
        if node is None:
            return ("transformations/**",)
        if not isinstance(node, yaml.SequenceNode):
            self.fail(node, '"libraries" must be a list')
        found = []
        for each in node.value:
            entry = self.mapping(each, "an entry of libraries").get("glob")
            include = None if entry is None else self.mapping(entry, "glob").get("include")
            if include is None:
                self.fail(each, 'an entry of libraries needs "glob" with "include"')
            found.append(self.text(include, "include"))
        return tuple(found)
