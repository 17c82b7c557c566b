"""The codecs, one pure package per protocol, and the registry: one line for each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.protocols import bmtp, bpsp, crystal, prism, psmb
from headwater.protocols.base import Session, Terms
from headwater.queue_spec import QueueSpec


@dataclass(frozen=True, slots=True)
class Protocol:
    name: str
    #: Makes the broker's side of one connection, from its terms and the protocol's settings.
    session: Callable[[Terms, Any], Session]
    #: What can be chosen about the protocol; its defaults need no argument.
    settings: type
    #: The specification of a queue by its name, where the protocol has queues.
    queue_spec: Callable[[Any, str], QueueSpec | None] | None = None


REGISTRY = {
    protocol.name: protocol
    for protocol in (
        Protocol(psmb.NAME, psmb.ServerSession, psmb.Settings),
        Protocol(bmtp.NAME, bmtp.ServerSession, bmtp.Settings, bmtp.spec_of),
        Protocol(bpsp.NAME, bpsp.ServerSession, bpsp.Settings),
        Protocol(prism.NAME, prism.ServerSession, prism.Settings, prism.spec_of),
        Protocol(crystal.NAME, crystal.ServerSession, crystal.Settings),
    )
}
