"""The library between a process and its files, compiled when it is needed, and the page of memory
through which it is watched and told what to do (shim.c)."""

import mmap
import shutil
import struct
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
#: Whether it can be used here: it needs Linux and a C compiler.
AVAILABLE = sys.platform == "linux" and shutil.which("cc") is not None

_PAGE_BYTES = 4096
_FOREVER = (1 << 64) - 1
_COUNTERS = {
    **{name: 8 * place for place, name in enumerate(("operations", "fail_from", "fail_count"))},
    **{name: 8 * place for place, name in enumerate(("failed", "die_at", "clock", "delay"), 3)},
}
_ERRORS = 56
_FAILING = 64
#: Kinds of operations that need room or a disk that works (see shim.c).
NEED_ROOM = "owtbrlm"


@cache
def library() -> Path:
    """The compiled library; it is removed when this process ends."""
    place = tempfile.TemporaryDirectory(prefix="headwater-shim-")
    _KEPT.append(place)
    made = Path(place.name) / "shim.so"
    how = ["cc", "-O2", "-Wall", "-shared", "-fPIC", "-o", str(made), str(SOURCE), "-ldl"]
    subprocess.run([*how, "-lpthread"], check=True)
    return made


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


class Shim:
    """Watches the files below `root`, of all processes that are started with its environment."""

    def __init__(
        self, place: Path, root: Path, *, record: bool = False, attach: bool = False
    ) -> None:
        """`attach`: to what another process has begun."""
        self.root = root.resolve()
        self.trace = place / "trace"
        self._page_file = place / "shared"
        if not attach:
            self._page_file.write_bytes(bytes(_PAGE_BYTES))
        with self._page_file.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _PAGE_BYTES)
        self.environment = {
            "LD_PRELOAD": str(library()),
            "TORTURE_ROOT": str(self.root),
            "TORTURE_SHARED": str(self._page_file),
            **({"TORTURE_TRACE": str(self.trace)} if record else {}),
        }

    @property
    def operations(self) -> int:
        """So many were done so far."""
        return self._get("operations")

    @property
    def failed(self) -> int:
        return self._get("failed")

    def fail(
        self,
        error: int,
        sync_error: int,
        *,
        after: int = 0,
        count: int | None = None,
        kinds: str = NEED_ROOM,
    ) -> None:
        """Let operations fail, once so many more are done: so many, or all until `heal`."""
        failing = bytes(chr(letter) in kinds for letter in range(128))
        self._page[_FAILING : _FAILING + len(failing)] = failing
        struct.pack_into("<ii", self._page, _ERRORS, error, sync_error)
        self._set("fail_count", _FOREVER if count is None else count)
        self._set("fail_from", self.operations + after)

    def heal(self) -> None:
        self._page[_FAILING : _FAILING + 128] = bytes(128)

    def die(self, after: int) -> None:
        """Let the process end (SIGKILL), once so many more operations are done."""
        self._set("die_at", max(self.operations + after, 1))

    def slow_syncs(self, seconds: float) -> None:
        """What relies on a sync that has not ended is found out more easily."""
        self._set("delay", int(seconds * 1e6))

    def shift_clock(self, seconds: float) -> None:
        struct.pack_into("<q", self._page, _COUNTERS["clock"], int(seconds * 1e9))

    def _get(self, name: str) -> int:
        value: int = struct.unpack_from("<Q", self._page, _COUNTERS[name])[0]
        return value

    def _set(self, name: str, value: int) -> None:
        struct.pack_into("<Q", self._page, _COUNTERS[name], value)
