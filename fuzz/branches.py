"""Which branches of the code an input takes.

Python has no cheap way to ask, so the source is changed when it is imported: each branch sets a
byte of its own (`hits`). That costs an input a few microseconds, and every one can be watched.

    hits[n]   0    this branch was never taken
              1    it was taken by the current input, for the first time (`FRESH`)
              3    it was taken before (`KNOWN`); setting the bit of FRESH again changes nothing

So whether an input has found something new is one search for a byte. The first `OUTCOMES` bytes
are no branches: what a target sees from outside (`outcome`), such as one answer after another.
"""

import ast
import sys
import zlib
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

FRESH, KNOWN = 1, 3
OUTCOMES = 4096
LONGEST_WORD = 40

hits = bytearray(OUTCOMES)
#: The constants of each module: words that its code waits for.
_words: dict[str, set[bytes]] = {}


def mark(number: int) -> None:
    hits[number] |= FRESH


def outcome(*seen: object) -> None:
    """Note what an input has led to. There should not be too many different ones."""
    hits[zlib.crc32(repr(seen).encode()) % OUTCOMES] |= FRESH


def fresh() -> list[int]:
    """What was taken for the first time since `know` was called."""
    return [number for number, hit in enumerate(hits) if hit == FRESH]


def know(numbers: Iterable[int]) -> None:
    for number in numbers:
        hits[number] = KNOWN


def forget(numbers: Iterable[int]) -> None:
    """As if these had never been taken."""
    for number in numbers:
        hits[number] = 0


def forget_all() -> None:
    hits[:] = bytes(len(hits))


def taken() -> int:
    """How many branches were taken."""
    return len(hits) - OUTCOMES - hits.count(0, OUTCOMES)


def words(*modules: str) -> list[bytes]:
    """The constants of these modules and of those inside them, in an order."""
    found: set[bytes] = set()
    for name, each in _words.items():
        if any(name == module or name.startswith(f"{module}.") for module in modules):
            found |= each
    return sorted(found)


def watch(*packages: str, but: Sequence[str] = ()) -> None:
    """From now on, modules of these packages are watched when they are imported."""
    sys.meta_path.insert(0, _Watcher(packages, tuple(but)))


class _Watcher(MetaPathFinder):
    def __init__(self, packages: Sequence[str], but: Sequence[str]) -> None:
        self._packages, self._but = packages, but

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not _inside(fullname, self._packages) or _inside(fullname, self._but):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def _inside(name: str, packages: Sequence[str]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in packages)


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(self.get_data(self.path), self.path)
        _words[fullname] = _constants(tree)
        return compile(_Marker().marked(tree), self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__hits__"], vars(module)["__mark__"] = hits, mark
        super().exec_module(module)


def _constants(tree: ast.AST) -> set[bytes]:
    """Bytes and short texts, but no sentences for people."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            value = (
                node.value.encode(errors="replace") if isinstance(node.value, str) else node.value
            )
            if isinstance(value, bytes) and value and len(value) <= LONGEST_WORD:
                found.add(value)
    return {word for word in found if word.count(b" ") < 2}


class _Marker(ast.NodeTransformer):
    """Puts a mark at the beginning of each branch: functions, conditions, loops, handlers, cases,
    and the parts of an expression that are not always looked at."""

    def __init__(self) -> None:
        self._functions = 0  # that the current node is inside of

    def marked(self, tree: ast.Module) -> ast.Module:
        self.generic_visit(tree)
        return ast.fix_missing_locations(tree)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self._functions += 1
        self.generic_visit(node)
        self._functions -= 1
        node.body.insert(1 if ast.get_docstring(node) is not None else 0, _statement(node))
        return node

    def visit(self, node: ast.AST) -> ast.AST:
        visited: ast.AST = super().visit(node)
        if not self._functions:
            return visited  # it is run once, when the module is imported
        if isinstance(visited, (ast.If, ast.While, ast.For, ast.AsyncFor)):
            visited.body.insert(0, _statement(visited))
            visited.orelse.insert(0, _statement(visited))
        elif isinstance(visited, (ast.ExceptHandler, ast.match_case)):
            visited.body.insert(0, _statement(visited.body[0]))
        elif isinstance(visited, ast.IfExp):
            visited.body, visited.orelse = _expression(visited.body), _expression(visited.orelse)
        elif isinstance(visited, ast.BoolOp):
            visited.values[1:] = [_expression(each) for each in visited.values[1:]]
        return visited


def _number() -> int:
    hits.append(0)
    return len(hits) - 1


def _statement(at: ast.AST) -> ast.stmt:
    """`__hits__[number] |= FRESH`"""
    place = ast.Subscript(ast.Name("__hits__", ast.Load()), ast.Constant(_number()), ast.Store())
    made = ast.AugAssign(place, ast.BitOr(), ast.Constant(FRESH))
    return ast.copy_location(made, at)


def _expression(value: ast.expr) -> ast.expr:
    """`__mark__(number) or value`: the mark returns nothing, so this is the value."""
    call = ast.Call(ast.Name("__mark__", ast.Load()), [ast.Constant(_number())], [])
    return ast.copy_location(ast.BoolOp(ast.Or(), [call, value]), value)
