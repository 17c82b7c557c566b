"""Imports point one way: transport → protocols → (commands, message) ← broker → log.

The rules below are the frame that everything is built in. A new package needs a rule here.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.protocols import BUILT_IN

SOURCE = Path(__file__).parent.parent / "src" / "headwater"
FILES = sorted(SOURCE.rglob("*.py"))

PROTOCOLS = tuple(each.name for each in BUILT_IN)

SMALL = {
    *("actions", "borrowed", "commands", "declare", "errors", "filters", "gate", "message", "pcre"),
    *("queue_spec", "rights", "shapes", "slowing", "timings", "topics", "traffic", "units"),
}

#: What every room of the pipeline may import besides the rooms below it.
AROUND = {
    *("borrowed", "config", "errors", "files", "filters", "flight.requests"),
    *("spark", "topics", "units"),
}

#: The rooms of the pipeline, each with those below it that it may import.
ROOMS: dict[str, set[str]] = {
    "project": set(),
    "tables": {"project"},
    "taskfiles": {"project", "tables"},
    "definitions": {"project", "tables", "taskfiles"},
    "contracts": {"project", "tables", "taskfiles"},
    "gold": {"project"},
    "bronze": {"project", "tables", "taskfiles"},
    "publish": {"project"},
    "care": {"project", "tables", "definitions"},
    "run": {"project", "tables", "taskfiles", "definitions", "care", "publish"},
    "audit": {"project", "tables", "contracts", "care"},
    "repair": {
        *("project", "tables", "taskfiles", "definitions", "contracts", "care", "run", "publish")
    },
}

#: What each part may import besides itself; None means everything.
RULES: dict[str, set[str] | None] = {
    **dict.fromkeys(SMALL, SMALL),
    "config": {"declare", "errors", "protocols.entry", "registry", "units"},
    "protocols": SMALL,
    # The one file of a protocol that knows of sockets, on what all clients share.
    **{
        f"protocols.{name}.asyncio_client": {
            *("errors", "message", f"protocols.{name}"),
            *("client.base", "client.link", "client.target"),
        }
        for name in PROTOCOLS
    },
    "registry": {"errors", "protocols"},
    # Small too, but not for codecs: they do no I/O.
    "files": set(),
    "sqlite": set(),
    "sockets": set(),
    "local_tokens": set(),
    "accepting": set(),
    "allocator": set(),
    "tls": {"errors"},
    "courtesy": set(),
    "clock": set(),
    "broker": SMALL | {"clock", "log.engine"},
    "log": {
        "arrow_compute",
        "clock",
        "courtesy",
        "files",
        "sqlite",
        "message",
        "errors",
        "filters",
        "timings",
        "units",
        "topics",
    },
    "transport": SMALL | {"accepting", "protocols", "sockets", "tls"},
    "control": {"errors"},
    "identity": {"actions", "commands", "errors", "files", "gate", "rights", "sqlite", "units"},
    "logging_setup": set(),
    "without": set(),
    "arrow_compute": set(),
    "console": {
        *("accepting", "actions", "borrowed", "control", "errors", "identity", "logging_setup"),
        *("registry", "rights", "sockets", "tls"),
    },
    "cli": None,
    "client": None,
    "server": None,
    "flight": SMALL
    | {"arrow_compute", "broker.broker", "broker.delays", "broker.quotas", "clock", "courtesy"}
    | {"files", "local_tokens", "log.record", "protocols.base", "sockets", "sqlite", "tls"},
    "spark": {"borrowed", "errors", "local_tokens", "units"},
    "pipeline": set(),
    **{
        f"pipeline.{room}": AROUND | {f"pipeline.{each}" for each in below}
        for room, below in ROOMS.items()
    },
    "pipeline.project.templates": {"pipeline.bronze", "pipeline.contracts", "pipeline.gold"},
    "demo": {"client", "config", "declare", "errors", "pipeline", "registry", "units"},
    "compiled": set(),
    "compiling": {"compiled"},
    "admin": SMALL
    | {"arrow_compute"}
    | {"broker", "config", "control", "identity", "protocols.base", "tls", "transport"},
    "__main__": None,
}

IMPURE = {"asyncio", "socket", "time", "threading"}
MOST_LINES = 450


def name_of(file: Path) -> str:
    return str(file.relative_to(SOURCE))


def module_of(file: Path) -> str:
    """The dotted name inside headwater: "log.engine"; empty for the package itself."""
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    package, *parts = name.split(".")
    path = SOURCE.joinpath(*parts)
    return package == "headwater" and (path.with_suffix(".py").exists() or path.is_dir())


def imports(file: Path) -> Iterator[str]:
    """Full names of all modules a file imports, inside functions and for type checking too."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(file, node)
            for alias in node.names:
                # `from headwater.log import engine` imports a module, not something out of one.
                full = f"{base}.{alias.name}"
                yield full if is_module(full) else base


def absolute(file: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = ["headwater", *file.relative_to(SOURCE).parent.parts]
    kept = package[: len(package) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])


def imported_parts(file: Path) -> set[str]:
    """What a file imports of headwater, as dotted names inside it."""
    names = {name for name in imports(file) if name.startswith("headwater.")}
    return {name.removeprefix("headwater.") for name in names}


def part_of(module: str) -> str | None:
    """The part of the tree that a module belongs to: the longest name that there is a rule for."""
    names = module.split(".")
    prefixes = (".".join(names[:length]) for length in range(len(names), 0, -1))
    return next((each for each in prefixes if each in RULES), None)


def may_import(part: str, name: str) -> bool:
    allowed = RULES[part]
    if allowed is None:
        return True
    return any(name == each or name.startswith(f"{each}.") for each in allowed | {part})


def test_nobody_uses_wait_for() -> None:
    """Of Python 3.11 it forgets that it is cancelled if that comes in the moment in which it ends.
    `asyncio.timeout` does not."""
    calls = [name_of(file) for file in FILES if "asyncio.wait_for(" in file.read_text()]
    assert not calls


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_imports_point_one_way(file: Path) -> None:
    module = module_of(file)
    if not module:
        # Which modules are imported has to be known before any of them is.
        assert imported_parts(file) == {"compiled"}
        return
    part = part_of(module)
    assert part is not None, f"say in {Path(__file__).name} what headwater.{module} may import"
    wrong = sorted(name for name in imported_parts(file) if not may_import(part, name))
    assert not wrong, f"headwater.{part} may not import {', '.join(wrong)}"


#: All that knows protocols only through the registry, or not at all.
NAMELESS = (
    *("broker", "log", "server", "transport", "config", "client", "cli", "admin", "console"),
    *("control", "declare", "registry"),
)
PAGES = sorted(file for kind in ("css", "js", "html") for file in SOURCE.rglob(f"*.{kind}"))


def is_nameless(file: Path) -> bool:
    return name_of(file).removesuffix(".py").partition("/")[0] in NAMELESS


@pytest.mark.parametrize(
    "file", [file for file in (*FILES, *PAGES) if is_nameless(file)], ids=name_of
)
def test_only_its_package_names_a_protocol(file: Path) -> None:
    text = file.read_text().lower()
    named = [name for name in PROTOCOLS if name in text]
    assert not named, f"{name_of(file)} speaks of {', '.join(named)}"


def is_pure(file: Path) -> bool:
    return module_of(file).startswith("protocols") and file.name != "asyncio_client.py"


@pytest.mark.parametrize("file", [*filter(is_pure, FILES)], ids=name_of)
def test_protocols_do_no_io(file: Path) -> None:
    impure = sorted(IMPURE & {name.partition(".")[0] for name in imports(file)})
    assert not impure, f"{name_of(file)} imports {', '.join(impure)}"


#: What other packages do not promise to keep, and the modules that may use it all the same.
BORROWED: dict[str, set[str]] = {
    r"\b_cy\b": {"pcre.py"},
    r"\bwebsockets\.(speedups|utils)\b": {"protocols/websocket/masking.py"},
    r"\b_jvm\b|_jsparkSession\b|\b_jsc\b|\b_gateway\b|_accumulatorServer|_active_spark_context": {
        "spark/jvm.py"
    },
    r"\buvicorn\.protocols\b": {"console/connections.py"},
    r"\bpyspark\.sql\.utils\b": {"spark/jvm.py"},
    r"\bpyspark\.sql\.pandas\b": {"spark/arrow_schemas.py"},
    r"\bpyspark import daemon\b|transform_with_state_driver_worker": {"spark/daemon.py"},
    r"\bpyspark\.pipelines\.\w|\bpyspark\.pipelines import\b": {
        "pipeline/definitions/declarative.py",
        "pipeline/definitions/connect.py",
    },
    r"\bpyspark\.sql\.connect\b": {"pipeline/definitions/connect.py"},
    r"\bsetattr\((?!self\b)": {
        "pipeline/definitions/spark_names.py",
        "pipeline/taskfiles/declare.py",  # on functions of a project's own definitions
    },
}
#: Names that begin with an underscore and are documented all the same.
DOCUMENTED = {"_exit", "_replace"}


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_what_others_do_not_promise_is_borrowed_in_one_place(file: Path) -> None:
    text = file.read_text()
    for marker, allowed in BORROWED.items():
        found = re.search(marker, text)
        assert found is None or name_of(file) in allowed, (
            f"{name_of(file)} uses {found[0]}; only {', '.join(sorted(allowed))} may"
        )


@pytest.mark.parametrize(
    "file", [file for file in FILES if not file.name.endswith("_pb2.py")], ids=name_of
)
def test_private_names_of_others_are_left_alone(file: Path) -> None:
    if any(name_of(file) in allowed for allowed in BORROWED.values()):
        return
    tree = ast.parse(file.read_text())
    found = sorted(private_uses(tree) - private_definitions(tree) - DOCUMENTED)
    assert not found, f"{name_of(file)} uses private names of others: {', '.join(found)}"


def private_uses(tree: ast.AST) -> set[str]:
    """Names with one underscore in front that are taken from a module or an object."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.name for alias in node.names)
            names.update((node.module or "").split("."))
        elif isinstance(node, ast.Import):
            names.update(part for alias in node.names for part in alias.name.split("."))
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def private_definitions(tree: ast.AST) -> set[str]:
    """Names that a file defines itself: functions, fields, and attributes of `self`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls"):
            names.add(node.attr)
    return names


def test_private_names_are_found() -> None:
    tree = ast.parse(
        "from other import _inner\nimport some._deep\nthing._hidden\nself._own\nsuper()._own\n"
    )
    assert private_uses(tree) - private_definitions(tree) == {"_inner", "_deep", "_hidden"}


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_files_can_be_read_in_one_sitting(file: Path) -> None:
    lines = len(file.read_text().splitlines())
    assert lines <= MOST_LINES, f"{name_of(file)} has {lines} lines; split it"


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for file in FILES:
        if file.name.endswith("_pb2.py"):
            continue  # generated
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name_of(file))
    repeated = {name: files for name, files in places.items() if len(files) > 1}
    assert not repeated


def test_the_rules_find_what_they_forbid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a mistake in this file would make everything above pass."""
    (tmp_path / "broker").mkdir()
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "engine.py").write_text("")
    file = tmp_path / "broker" / "router.py"
    file.write_text(
        "import headwater.server\n"
        "from headwater import __version__, log\n"
        "from headwater.message import Run\n"
        "def late():\n"
        "    from ..log import engine\n"
        "    from . import queue\n"
        "    from headwater.log.embedded.engine import Embedded\n"
    )
    monkeypatch.setattr("tests.test_layers.SOURCE", tmp_path)
    names = imported_parts(file)
    assert names == {"server", "log", "message", "log.engine", "broker", "log.embedded.engine"}
    wrong = {name for name in names if not may_import("broker", name)}
    assert wrong == {"server", "log", "log.embedded.engine"}
