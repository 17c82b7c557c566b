"""What the broker tells its console when it starts it."""

from dataclasses import dataclass
from pathlib import Path

from headwater.sockets import is_loopback
from headwater.tls import TlsFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    data: Path
    host: str
    port: int
    #: Names that it may be called by, besides its address and localhost.
    names: tuple[str, ...] = ()
    session_hours: float = 12.0
    dead_peer_seconds: float = 60.0
    tls: TlsFiles | None = None
    handshake_seconds: float = 10.0

    @property
    def secure(self) -> bool:
        return self.tls is not None

    @property
    def is_local(self) -> bool:
        """Only this machine can reach it."""
        return is_loopback(self.host)
