"""The codecs, one pure package per protocol, and the registry: one line for each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.protocols import bpsp, psmb
from headwater.protocols.base import Session, Terms


@dataclass(frozen=True, slots=True)
class Protocol:
    name: str
    #: Makes the broker's side of one connection, from its terms and the protocol's settings.
    session: Callable[[Terms, Any], Session]
    #: What can be chosen about the protocol; its defaults need no argument.
    settings: type


REGISTRY = {
    protocol.name: protocol
    for protocol in (
        Protocol(psmb.NAME, psmb.ServerSession, psmb.Settings),
        Protocol(bpsp.NAME, bpsp.ServerSession, bpsp.Settings),
    )
}
