"""What the broker tells its console when it starts it."""

from dataclasses import dataclass
from pathlib import Path

from headwater.tls import TlsFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    data: Path
    host: str
    port: int
    #: Names that it may be called by, besides its address and localhost.
    names: tuple[str, ...] = ()
    #: Without any user, everyone may do everything.
    anonymous: bool = True
    session_hours: float = 12.0
    dead_peer_seconds: float = 60.0
    #: How many there may be, how long the head of a request may take (and the handshake of TLS
    #: before it), and the rest of it.
    connections: int = 1000
    handshake_seconds: float = 10.0
    unfinished_seconds: float = 30.0
    tls: TlsFiles | None = None

    @property
    def secure(self) -> bool:
        return self.tls is not None
