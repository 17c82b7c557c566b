"""What is on its way to one client: gathered until the turn ends, and never more than may wait.

    send → gathered → flush → the transport's buffer → socket

Nothing is buffered for a client beyond its share (`OutputCeiling`), except a single batch that is
larger. Whoever was told that there is no room hears of it when all is sent.
"""

import asyncio

from headwater.traffic import Meter
from headwater.transport.ceilings import OutputCeiling
from headwater.transport.turn import Flushable, Turn

# More than this is sent before the turn ends. What is less is joined before it is sent.
GATHERED_BYTES = 256 * 1024
JOINED_BYTES = 32 * 1024
# The event loop tells when more than this is buffered, and when all of it is sent. For less it is
# not worth the two calls, unless something waits for it (`_notice_when_drained`).
UNNOTICED_BYTES = 64 * 1024


class Outgoing(Flushable):
    transport: asyncio.Transport

    def __init__(self, turn: Turn, ceiling: OutputCeiling, meter: Meter, most_bytes: int) -> None:
        self._turn = turn
        self._ceiling = ceiling
        self._meter = meter
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._stuck = False  # more is buffered than is worth no notice
        self._unnoticed_bytes = min(UNNOTICED_BYTES, most_bytes // 2)

    def begin(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=self._unnoticed_bytes, low=0)

    def send(self, data: bytes) -> None:
        """Send when the turn ends, together with what else there is."""
        if not self._gathered:
            self._turn.owe(self)
        self._gathered.append(data)
        size = len(data)
        self._gathered_bytes += size
        self._meter.bytes_out += size
        if self._gathered_bytes > GATHERED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what was gathered."""
        gathered = self._gathered
        if not gathered:
            return
        if len(gathered) == 1:
            self.transport.write(gathered[0])
        elif self._gathered_bytes <= JOINED_BYTES:
            self.transport.write(b"".join(gathered))
        else:
            self.transport.writelines(gathered)
        self._gathered = []
        self._gathered_bytes = 0

    def has_room(self, size: int) -> bool:
        """Whether so much may be sent. If not, `drained` is called when all is sent."""
        if not self._stuck and self._gathered_bytes + size <= self._unnoticed_bytes:
            return True
        self.flush()
        buffered = self.transport.get_write_buffer_size()
        if buffered and buffered + size > self._ceiling.share:
            self._notice_when_drained()
            return False
        return True

    def is_full(self) -> bool:
        """Whether no more should be sent. If so, `drained` is called when all is sent."""
        if self._stuck and self.buffered > self._ceiling.share:
            self._notice_when_drained()
            return True
        return False

    @property
    def buffered(self) -> int:
        return self._gathered_bytes + self.transport.get_write_buffer_size()

    def _notice_when_drained(self) -> None:
        """Have `drained` called when everything that is buffered now is sent."""
        self.transport.set_write_buffer_limits(high=0)

    def stuck(self) -> None:
        if not self._stuck:
            self._stuck = True
            self._ceiling.add(1)

    def drained(self) -> None:
        self._unstuck()
        self.transport.set_write_buffer_limits(high=self._unnoticed_bytes, low=0)

    def drop(self) -> None:
        """Nobody is there to read it."""
        self._gathered.clear()
        self._unstuck()

    def _unstuck(self) -> None:
        if self._stuck:
            self._stuck = False
            self._ceiling.add(-1)
