"""How much went in and out, and what it cost: of one connection, and of all with its protocol.

Counted per buffer and per batch, never per message, and by the connection alone. Once a second what
it has counted is poured into the sum of its protocol.
"""

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Traffic:
    """Messages and bytes, in and out. A plain class with slots: it is on the way of every batch."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in", "messages_out")

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.messages_out = self.bytes_out = 0

    def add(self, other: "Traffic") -> None:
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.messages_out += other.messages_out
        self.bytes_out += other.bytes_out

    def take(self, other: "Traffic") -> None:
        """Have the same counts."""
        self.messages_in, self.bytes_in = other.messages_in, other.bytes_in
        self.messages_out, self.bytes_out = other.messages_out, other.bytes_out

    def copy(self) -> "Traffic":
        made = Traffic()
        made.take(self)
        return made


@mypyc_attr(allow_interpreted_subclasses=True)
class Meter(Traffic):
    """What one connection has counted, and how fast it grows."""

    __slots__ = (
        *("_at", "_poured", "_seconds_seen"),
        *("over_half_since", "rate_in", "rate_out", "seconds", "share"),
    )

    def __init__(self) -> None:
        super().__init__()
        #: Bytes per second between the last two samples.
        self.rate_in = self.rate_out = 0.0
        #: Seconds of the loop that went into what the client has sent.
        self.seconds = 0.0
        #: The part of the loop's time between the last two samples.
        self.share = 0.0
        #: Since when that has been more than half; 0: it is not.
        self.over_half_since = 0.0
        self._seconds_seen = 0.0
        self._at = 0.0
        self._poured = Traffic()

    def sample(self, now: float, total: Traffic) -> None:
        """Note how fast it is, and pour what was counted since the last time into a sum."""
        poured, seconds = self._poured, max(now - self._at, 1e-6)
        if self._at:
            self.rate_in = (self.bytes_in - poured.bytes_in) / seconds
            self.rate_out = (self.bytes_out - poured.bytes_out) / seconds
            self.share = min((self.seconds - self._seconds_seen) / seconds, 1.0)
            if self.share <= 0.5:
                self.over_half_since = 0.0
            elif not self.over_half_since:
                self.over_half_since = self._at
        self._seconds_seen = self.seconds
        self._at = now
        if (
            self.bytes_in != poured.bytes_in
            or self.bytes_out != poured.bytes_out
            or self.messages_in != poured.messages_in  # of bytes that came before
        ):
            self.pour(total)

    def pour(self, total: Traffic) -> None:
        poured = self._poured
        total.messages_in += self.messages_in - poured.messages_in
        total.bytes_in += self.bytes_in - poured.bytes_in
        total.messages_out += self.messages_out - poured.messages_out
        total.bytes_out += self.bytes_out - poured.bytes_out
        poured.take(self)
