"""The codecs, one pure package per protocol, and the registry: one line for each."""

from collections.abc import Callable
from dataclasses import dataclass

from headwater.protocols import bpsp, psmb
from headwater.protocols.base import Session, Terms


@dataclass(frozen=True, slots=True)
class Protocol:
    name: str
    session: Callable[[Terms], Session]


REGISTRY = {
    protocol.name: protocol
    for protocol in (
        Protocol(psmb.NAME, psmb.ServerSession),
        Protocol(bpsp.NAME, bpsp.ServerSession),
    )
}
