"""What a process has done to its files, in order, as shim.c has recorded it."""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

_HEAD = Struct("<B3xiiIIqq")


class Operation(NamedTuple):
    """One of them; shim.c says what `a`, `b` and the texts of each kind are."""

    number: int
    kind: str
    pid: int
    fd: int
    a: int
    b: int
    first: bytes
    second: bytes


def operations(file: Path) -> Iterator[Operation]:
    data = file.read_bytes()
    position = number = 0
    while position < len(data):
        kind, pid, fd, first, second, a, b = _HEAD.unpack_from(data, position)
        middle = position + _HEAD.size + first
        texts = data[position + _HEAD.size : middle], data[middle : middle + second]
        yield Operation(number, chr(kind), pid, fd, a, b, *texts)
        position, number = middle + second, number + 1
