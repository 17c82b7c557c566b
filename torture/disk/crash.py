"""A disk as it may be found after a crash of the machine, at any moment of a trace.

A file system promises only this: what was done before a sync began is there after that sync has
ended. So of everything else any part may be there:

- of the writes and truncations of a file since its last sync, any subset; of a write, any sectors;
- of the names that were made, replaced and removed in a directory since it was synced, any prefix,
  for file systems keep the order of these in their journals. Names and content do not wait for each
  other.

A file is what is on the disk for sure (`base`) and what was changed since, in order; a directory as
well, with names in the place of bytes.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from random import Random

from torture.disk.trace import Operation

SECTORS = (512, 4096)


@dataclass(slots=True)
class Change:
    """A write, a truncation (without data), or names in a directory."""

    number: int
    position: int = 0
    data: bytes | None = None
    names: "dict[str, Node | None]" = field(default_factory=dict)
    durable: bool = False


class File:
    def __init__(self) -> None:
        self.base = b""
        self.changes: list[Change] = []

    def fold(self) -> None:
        """What is on the disk for sure needs no longer be told apart."""
        count = _settled(self.changes)
        if count:
            self.base = _written(self.base, ((each, each.data) for each in self.changes[:count]))
            del self.changes[:count]

    def content(self, choose: "Choice") -> bytes:
        if not self.changes:
            return self.base
        return _written(self.base, choose.parts(self.changes))


class Directory:
    def __init__(self) -> None:
        self.base: dict[str, Node] = {}
        self.changes: list[Change] = []

    def fold(self) -> None:
        count = _settled(self.changes)
        self.base = _renamed(self.base, self.changes[:count])
        del self.changes[:count]

    def content(self, choose: "Choice") -> "dict[str, Node]":
        return _renamed(self.base, choose.names(self.changes))


Node = File | Directory


def _settled(changes: list[Change]) -> int:
    return next((n for n, each in enumerate(changes) if not each.durable), len(changes))


def _written(base: bytes, parts: "Iterator[tuple[Change, bytes | None]]") -> bytes:
    content = bytearray(base)
    for change, data in parts:
        position = change.position
        if data is None:
            content[position:] = bytes(max(position - len(content), 0))
        else:
            if len(content) < position:
                content.extend(bytes(position - len(content)))
            content[position : position + len(data)] = data
    return bytes(content)


def _renamed(base: "dict[str, Node]", changes: list[Change]) -> "dict[str, Node]":
    content = dict(base)
    for change in changes:
        for name, node in change.names.items():
            if node is None:
                content.pop(name, None)
            else:
                content[name] = node
    return content


class Choice:
    """Which of the changes that were not synced are there: all of them."""

    name = "all that was issued"

    def parts(self, changes: list[Change]) -> Iterator[tuple[Change, bytes | None]]:
        return ((each, each.data) for each in changes)

    def names(self, changes: list[Change]) -> list[Change]:
        return changes


class Synced(Choice):
    name = "only what was synced"

    def parts(self, changes: list[Change]) -> Iterator[tuple[Change, bytes | None]]:
        return ((each, each.data) for each in changes if each.durable)

    def names(self, changes: list[Change]) -> list[Change]:
        return [each for each in changes if each.durable]


class NamesFirst(Choice):
    """All names, and no content that was not synced: a file under its name, and empty."""

    name = "names without content"
    parts = Synced.parts


class ContentFirst(Choice):
    name = "content without names"
    names = Synced.names


class Torn(Choice):
    """Anything goes."""

    name = "torn"

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def parts(self, changes: list[Change]) -> Iterator[tuple[Change, bytes | None]]:
        chance, likely = self._chance, self._chance.choice((0.1, 0.5, 0.9))
        for each in changes:
            if each.durable or (each.data is None and chance.random() < likely):
                yield each, each.data
            elif each.data is not None:
                for position, data in self._pieces(each.position, each.data, likely):
                    yield Change(each.number, position), data

    def _pieces(self, position: int, data: bytes, likely: float) -> Iterator[tuple[int, bytes]]:
        """Whole, up to somewhere, or some of its sectors."""
        chance, sector = self._chance, self._chance.choice(SECTORS)
        sort = chance.randrange(3)
        if sort == 0:
            if chance.random() < likely:
                yield position, data
            return
        stop = position + len(data)
        if sort == 1:
            sectors = position // sector + chance.randrange(len(data) // sector + 2)
            stop = min(stop, sectors * sector)
        at = position
        while at < stop:
            following = min((at // sector + 1) * sector, stop)
            if sort == 1 or chance.random() < likely:
                yield at, data[at - position : following - position]
            at = following

    def names(self, changes: list[Change]) -> list[Change]:
        reached = self._chance.randrange(len(changes) + 1)
        return [each for n, each in enumerate(changes) if each.durable or n < reached]


class Disk:
    """All that lies below a directory, as far as a trace was followed."""

    def __init__(self, root: Path, ignores: Callable[[Operation, str], bool] | None = None) -> None:
        self._root = PurePosixPath(root)
        self._top = Directory()
        self._open: dict[tuple[int, int], tuple[Node, str]] = {}
        self._syncing: dict[int, Node] = {}
        self._ignores = ignores

    def apply(self, operation: Operation) -> None:
        act: Callable[[Operation], None] = getattr(self, f"_do_{operation.kind}")
        act(operation)

    def state(self, choose: Choice) -> dict[str, bytes | None]:
        """Contents by path, relative to the root; None for a directory."""
        return dict(_walk(self._top, "", choose))

    # What each kind of operation does

    def _do_o(self, it: Operation) -> None:
        parent, name = self._place(it.first)
        if it.b:
            parent.changes.append(Change(it.number, names={name: File()}))
        node = self._find(it.first)
        if node is None:
            return  # a socket, or something that was there before
        self._open[it.pid, it.fd] = node, os.fsdecode(it.first)
        if it.a & os.O_TRUNC and isinstance(node, File):
            node.changes.append(Change(it.number))

    def _do_w(self, it: Operation) -> None:
        node = self._opened(it)
        if node is not None:
            node.changes.append(Change(it.number, it.a, it.first))
            if it.b:
                self._syncing[it.number] = node

    def _do_t(self, it: Operation) -> None:
        node = self._opened(it)
        if node is not None:
            node.changes.append(Change(it.number, it.a))

    def _do_b(self, it: Operation) -> None:
        node = self._opened(it)
        if node is not None and not self._ignored(it):
            self._syncing[it.number] = node

    def _do_e(self, it: Operation) -> None:
        node = self._syncing.pop(it.a, None)
        if node is None:
            return
        alone = any(each.number == it.a for each in node.changes)  # one that syncs itself only
        for each in node.changes:
            if (each.number == it.a) if alone and each.data is not None else each.number < it.a:
                each.durable = True
        node.fold()

    def _do_r(self, it: Operation) -> None:
        node = self._find(it.first)
        if node is None:
            return
        (parent, old), (target, new) = self._place(it.first), self._place(it.second)
        if parent is target:
            parent.changes.append(Change(it.number, names={old: None, new: node}))
        else:
            parent.changes.append(Change(it.number, names={old: None}))
            target.changes.append(Change(it.number, names={new: node}))

    def _do_l(self, it: Operation) -> None:
        node, (target, new) = self._find(it.first), self._place(it.second)
        target.changes.append(Change(it.number, names={new: node}))

    def _do_u(self, it: Operation) -> None:
        parent, name = self._place(it.first)
        parent.changes.append(Change(it.number, names={name: None}))

    _do_k = _do_u

    def _do_m(self, it: Operation) -> None:
        parent, name = self._place(it.first)
        parent.changes.append(Change(it.number, names={name: Directory()}))

    # Names as the processes see them

    def _place(self, path: bytes) -> tuple[Directory, str]:
        relative = PurePosixPath(os.fsdecode(path)).relative_to(self._root)
        if relative == PurePosixPath("."):
            return Directory(), ""
        parent = self._follow(relative.parent.parts)
        assert isinstance(parent, Directory), path
        return parent, relative.name

    def _find(self, path: bytes) -> Node | None:
        return self._follow(PurePosixPath(os.fsdecode(path)).relative_to(self._root).parts)

    def _follow(self, parts: tuple[str, ...]) -> Node | None:
        node: Node | None = self._top
        for part in parts:
            node = node.content(_ISSUED).get(part) if isinstance(node, Directory) else None
        return node

    def _opened(self, it: Operation) -> Node | None:
        return self._open.get((it.pid, it.fd), (None, ""))[0]

    def _ignored(self, it: Operation) -> bool:
        return self._ignores is not None and self._ignores(it, self._open[it.pid, it.fd][1])


_ISSUED = Choice()


def _walk(directory: Directory, prefix: str, choose: Choice) -> Iterator[tuple[str, bytes | None]]:
    for name, node in directory.content(choose).items():
        path = f"{prefix}{name}"
        if isinstance(node, Directory):
            yield path, None
            yield from _walk(node, f"{path}/", choose)
        else:
            yield path, node.content(choose)
