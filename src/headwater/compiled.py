"""Compiled modules in place of plain ones, where set-up could make them.

mypyc makes C extensions of the typed modules of the hot path, from the same source
(`headwater.compiling`). They are kept apart from it, in the environment that Headwater is installed
in, with a digest of the sources that they were made from: what was made from others is not used.
So an edited module counts at once, and a platform without a compiler misses nothing but speed.

    headwater --version                  says which are used
    HEADWATER_PURE=1 headwater serve     plain Python, whatever is there

What is different in compiled modules, as of mypyc 2.4:
- An attribute of a class is what its objects begin with. A subclass that is not compiled cannot
  give it another value but by assigning it in `__init__`.
- Nobody may take a weak reference to an object: its memory would be freed too often.
- Constants of a module can be replaced from outside, its functions and what it imports cannot.
- What is annotated, or follows from the first value of a variable, is checked when it runs: a value
  of JSON is an `object`. A class is imported from the module that defines it.
"""

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

VARIABLE = "HEADWATER_PURE"
SOURCE = Path(__file__).parent
#: Where the compiled modules of this environment are.
PLACE = Path(sys.prefix) / "headwater-compiled"
MANIFEST = "manifest.json"

#: What is compiled, by the path inside the package.
MODULES = (
    "broker/broker.py",
    "broker/cursor.py",
    "broker/late.py",
    "broker/peer.py",
    "broker/router.py",
    "broker/subscriber.py",
    "commands.py",
    "log/embedded/engine.py",
    "log/embedded/tail.py",
    "log/embedded/index.py",
    "log/engine.py",
    "log/record.py",
    "log/small.py",
    "message.py",
    "protocols/bmtp/delivering.py",
    "protocols/bmtp/envelope.py",
    "protocols/bmtp/publishing.py",
    "protocols/bmtp/reader.py",
    "protocols/bmtp/server.py",
    "protocols/bmtp/wire.py",
    "protocols/bpsp/server.py",
    "protocols/bpsp/wire.py",
    "protocols/bulk.py",
    "protocols/crystal/server.py",
    "protocols/crystal/wire.py",
    "protocols/prism/server.py",
    "protocols/prism/wire.py",
    "protocols/psmb/server.py",
    "protocols/psmb/wire.py",
    "protocols/websocket/frames.py",
    "rights.py",
    "slowing.py",
    "timings.py",
    "traffic.py",
    "transport/ceilings.py",
    "transport/clock.py",
    "transport/connection.py",
    "transport/marking.py",
    "transport/outgoing.py",
    "transport/turn.py",
    "transport/unfinished.py",
)


def digest() -> str:
    """Of the sources as they are, and of what a compiled module depends on besides."""
    total = hashlib.sha256(f"{sys.version} {EXTENSION_SUFFIXES[0]}".encode())
    for module in MODULES:
        total.update(b"\0" + module.encode() + b"\0" + (SOURCE / module).read_bytes())
    return total.hexdigest()


class _CompiledFinder:
    """Finds the compiled modules, before Python finds the plain ones."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._files.get(name)
        if file is None:
            return None
        location = str(PLACE / file)
        return spec_from_file_location(name, location, loader=ExtensionFileLoader(name, location))


def look() -> tuple[str, dict[str, str]]:
    """Which modules are used, for a person, and the files of the compiled ones."""
    if os.environ.get(VARIABLE, "") not in ("", "0"):
        return f"plain Python, because of {VARIABLE}", {}
    try:
        manifest = json.loads((PLACE / MANIFEST).read_bytes())
        if manifest["digest"] != digest():
            return "plain Python; the compiled modules are of other sources", {}
        return "compiled", manifest["files"]
    except (OSError, ValueError, KeyError):
        return "plain Python", {}


#: "compiled", or "plain Python", with the reason if it is not the usual one.
state, _files = look()


_finder = _CompiledFinder(_files)


def prefer() -> None:
    """Import the compiled modules from now on, if there are any."""
    if _files:
        sys.meta_path.insert(0, _finder)


def avoid() -> None:
    """Import plain modules from now on, in this process."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
