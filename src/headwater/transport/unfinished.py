"""A message that has begun to arrive: it claims its memory, and has to arrive some day.

Asking a session for it takes as long as a small message does, so it is asked only when as much has
come as a message that claims something.
"""

from headwater.protocols.base import Session
from headwater.transport.ceilings import UNCLAIMED_BYTES, Claimant, InputCeiling

# A message that arrives more slowly than this takes too long.
SLOWEST_BYTES_PER_SECOND = 64 * 1024


class Unfinished:
    """It does not know whose it is: nothing may lead back to a connection that has left."""

    def __init__(self, ceiling: InputCeiling) -> None:
        self._ceiling = ceiling
        self._claimed = False
        #: Bytes that have come since nothing was unfinished.
        self.came = 0
        #: Some command was carried out since `is_overdue` was asked.
        self.moved = False
        self._since: float | None = None

    def claim(self, who: Claimant, session: Session) -> None:
        """Have memory for what the session waits for, now or later (`InputCeiling`)."""
        if self.came <= UNCLAIMED_BYTES and not self._claimed:
            return
        size = session.unfinished
        if size > UNCLAIMED_BYTES or self._claimed:
            self._claimed = size > UNCLAIMED_BYTES
            self._ceiling.claim(who, size)
        if not size:
            self.came = 0

    def drop(self, who: Claimant) -> None:
        """It will never arrive."""
        if self._claimed:
            self._claimed = False
            self._ceiling.claim(who, 0)

    def is_overdue(self, size: int, now: float, seconds: float) -> bool:
        """Whether a message of so many bytes, or none, has been arriving for longer than it may.
        Ask now and then."""
        moved, self.moved = self.moved, False
        if not size or moved:
            self._since = None
        elif self._since is None:
            self._since = now
        else:
            return now - self._since > seconds + size / SLOWEST_BYTES_PER_SECOND
        return False
