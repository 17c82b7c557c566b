"""One port for all: which protocol a client speaks is told by its first bytes.

Each protocol says whether some bytes are its own. Those that know how their clients begin are asked
first, then those that take any WebSocket, then those that take anything.
"""

from collections.abc import Iterable, Sequence

from headwater.protocols.entry import Protocol

# A path of an HTTP request that has no end within so many bytes is nobody's.
LONGEST_PATH = 256


def in_order(protocols: Iterable[Protocol]) -> tuple[Protocol, ...]:
    """In the order in which they are asked."""
    return tuple(sorted(protocols, key=lambda each: each.generality))


def recognise(data: bytes, protocols: Sequence[Protocol]) -> str | None:
    """The name of the protocol, or None while the bytes do not tell."""
    for each in protocols:
        found = each.recognise(data)
        if found is None:
            return None
        if found:
            return each.name
    return None


def begins(data: bytes, magic: bytes) -> bool | None:
    """Whether the bytes begin with these; None while they may."""
    if len(data) < len(magic):
        return None if magic.startswith(data) else False
    return data.startswith(magic)


def requested_path(data: bytes) -> str | None:
    """The path that an HTTP request with GET asks for; None while it may go on."""
    target = data[4 : 4 + LONGEST_PATH]
    ends = [end for end in (target.find(b" "), target.find(b"?")) if end >= 0]
    if not ends:
        return None if len(target) < LONGEST_PATH else ""
    return target[: min(ends)].decode("latin-1")
