"""Every error that Headwater raises on purpose.

    HeadwaterError              has a code and a sentence for a person
     ├─ ConfigError             the configuration: file, line, sentence
     ├─ Refusal                 a request was understood and declined; the connection lives on
     │   ├─ TooLate             a client took longer than it may
     │   └─ LogUnavailable      the log cannot take messages now (disk full, I/O error)
     ├─ ProtocolViolation       the peer broke its protocol; the connection ends
     ├─ Disconnected            a client lost its connection, or could not get one
     └─ LogError                the log on disk
         ├─ LogDamaged          names segment, offset range and the command that can repair it
         └─ LogLocked           another process has this log open

A codec turns Refusal and ProtocolViolation into its protocol's bytes, in one place per protocol.
`Code` says what went wrong in words that every protocol can map to its own numbers.
"""

from collections import Counter
from enum import Enum


class Code(Enum):
    MALFORMED = "malformed"
    UNKNOWN_COMMAND = "unknown command"
    NOT_PERMITTED = "not permitted"
    NOT_FOUND = "not found"
    ALREADY_EXISTS = "already exists"
    BUSY = "busy"
    TOO_LARGE = "too large"
    UNAVAILABLE = "unavailable"
    NO_SPACE = "no space"
    INTERNAL = "internal"


class HeadwaterError(Exception):
    """Base of all errors here; `str(error)` is a sentence that a user understands."""


class ConfigError(HeadwaterError):
    """A key or value in the configuration is wrong."""


#: How often a request was declined or a protocol broken in this process, by the reason.
DECLINED: Counter[Code] = Counter()
#: How often somebody was over a limit of the configuration, by its name. Those of the table
#: `limits` are called without it: "message_bytes", but "flight.calls".
OVER_LIMITS: Counter[str] = Counter()


class Refusal(HeadwaterError):
    """A request was understood and declined. The connection stays open."""

    def __init__(self, code: Code, sentence: str, *, limit: str = "") -> None:
        """`limit`: the one that was asked for more than it allows, if any (OVER_LIMITS)."""
        super().__init__(sentence)
        self.code = code
        _count(code, limit)


class TooLate(Refusal):
    """Somebody took longer than a limit allows."""

    def __init__(self, sentence: str, limit: str) -> None:
        super().__init__(Code.UNAVAILABLE, sentence, limit=limit)


class LogUnavailable(Refusal):
    """The log cannot take messages now."""

    def __init__(self, sentence: str) -> None:
        super().__init__(Code.NO_SPACE, sentence)


class ProtocolViolation(HeadwaterError):
    """The peer sent something its protocol does not allow. The connection ends."""

    def __init__(self, code: Code, sentence: str, *, limit: str = "") -> None:
        super().__init__(sentence)
        self.code = code
        _count(code, limit)


class Disconnected(HeadwaterError):
    """The connection is gone; what was not answered may or may not have been done."""


class LogError(HeadwaterError):
    """The log on disk cannot be used as it is."""


class LogDamaged(LogError):
    """Bytes on disk are not what was written."""

    def __init__(self, segment: str, first: int, last: int | None, what: str) -> None:
        upto = "the end of the segment" if last is None else f"offset {last}"
        super().__init__(
            f"segment {segment} is damaged from offset {first} to {upto}: {what}. "
            "'headwater log verify' shows what is lost, 'headwater log repair' keeps the rest."
        )
        self.segment, self.first, self.last, self.what = segment, first, last, what


class LogLocked(LogError):
    """Another process has this log open for writing."""


def _count(code: Code, limit: str) -> None:
    DECLINED[code] += 1
    if limit:
        OVER_LIMITS[limit] += 1
