"""Clients for the protocols, on the broker's own codecs.

`connect` takes a URL and returns the client for its scheme:

    async with connect("PROTOCOL://localhost") as client: ...

The class of each protocol's clients can be imported from here, too.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.client.base import Client as Client
from headwater.client.base import Message as Message
from headwater.client.target import Target as Target
from headwater.client.trust import Trust as Trust
from headwater.config import Config
from headwater.errors import HeadwaterError
from headwater.registry import REGISTRY

if TYPE_CHECKING:
    # At run time `__getattr__` finds them, and those of installed protocols as well.
    from headwater.protocols.clients import *  # noqa: F403


def connect(
    url: "str | Target", config: Config | None = None, trust: Trust | None = None
) -> Client:
    """The client for a URL; use it with `async with`.

    What the URL leaves open (secrets, how a protocol is spoken) is taken from the environment, and
    then from a configuration of Headwater where one is given. `trust` is for URLs with TLS.
    """
    target = Target.parse(url) if isinstance(url, str) else url
    if trust is not None:
        target = replace(target, trust=trust)
    settings = (config or Config()).settings_of(target.scheme)
    client: Client = REGISTRY[target.scheme].client_class().from_target(target, settings)
    if target.secure and not client.secure:
        raise HeadwaterError(f"the client for {REGISTRY[target.scheme].title} has no TLS")
    return client


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        for each in REGISTRY.values():
            if each.client.rpartition(":")[2] == name:
                return each.client_class()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
