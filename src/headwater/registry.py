"""The registry of protocols: those that come with Headwater, and those that are installed.

An installed package adds a protocol by an entry point of the group `headwater.protocols` that names
its `Protocol`:

    [project.entry-points."headwater.protocols"]
    line = "headwater_line:PROTOCOL"
"""

from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points

from headwater.errors import HeadwaterError
from headwater.protocols import BUILT_IN
from headwater.protocols.entry import Protocol

GROUP = "headwater.protocols"


def _installed() -> Iterator[Protocol]:
    for point in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            found = point.load()
        except Exception as error:
            raise HeadwaterError(
                f'the installed protocol "{point.name}" ({point.value}) cannot be loaded: {error}'
            ) from error
        if not isinstance(found, Protocol):
            raise HeadwaterError(
                f'the entry point "{point.name}" of {GROUP} is not a protocol: {point.value}'
            )
        yield found


def _by_name(*protocols: Protocol) -> dict[str, Protocol]:
    found: dict[str, Protocol] = {}
    for each in protocols:
        if each.name in found:
            raise HeadwaterError(f'two protocols have the name "{each.name}"')
        found[each.name] = each
    return found


def _by_scheme(protocols: Iterable[Protocol]) -> dict[str, tuple[Protocol, bool]]:
    """Inside TLS, an "s" is added to the name, as in https."""
    found: dict[str, tuple[Protocol, bool]] = {}
    for each in protocols:
        for scheme, secure in ((each.name, False), (f"{each.name}s", True)):
            if scheme in found:
                raise HeadwaterError(f"two protocols have URLs that begin with {scheme}://")
            found[scheme] = each, secure
    return found


#: Every protocol by its name, in the order in which they are shown.
REGISTRY = _by_name(*BUILT_IN, *_installed())
#: How URLs begin: the protocol, and whether it is inside TLS.
SCHEMES = _by_scheme(REGISTRY.values())
