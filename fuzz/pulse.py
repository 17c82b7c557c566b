"""The input that a process is busy with, for whoever finds it dead or hanging.

| count: u64 | size: u32 | input |      in a file that both processes have in memory
"""

import mmap
from pathlib import Path
from struct import Struct

_HEAD = Struct("<QI")
_MOST = 1 << 20


class Pulse:
    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._count = 0

    @classmethod
    def begun(cls, file: Path) -> "Pulse":
        file.write_bytes(bytes(_HEAD.size + _MOST))
        return cls.joined(file)

    @classmethod
    def joined(cls, file: Path) -> "Pulse":
        with file.open("r+b") as opened:
            return cls(mmap.mmap(opened.fileno(), 0))

    def beat(self, data: bytes) -> None:
        self._count += 1
        data = data[:_MOST]
        _HEAD.pack_into(self._memory, 0, self._count, len(data))
        self._memory[_HEAD.size : _HEAD.size + len(data)] = data

    @property
    def count(self) -> int:
        return int(_HEAD.unpack_from(self._memory)[0])

    @property
    def data(self) -> bytes:
        _, size = _HEAD.unpack_from(self._memory)
        return self._memory[_HEAD.size : _HEAD.size + size]
