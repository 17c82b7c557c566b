"""Times and dates as texts and numbers."""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The years 1 to 9999, in microseconds since 1970.
FIRST_MICROSECOND = -62_135_596_800_000_000
LAST_MICROSECOND = 253_402_300_799_999_999
#: Microseconds, and digits behind the point that can count.
UNITS = {"s": (1_000_000, 6), "ms": (1_000, 3), "us": (1, 0)}

# ISO 8601. A year 0000 is none.
_TIME = re.compile(
    r"(?!0000)([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]{1,9}))?(?:Z|([+-])((?:0[0-9]|1[0-7])):([0-5][0-9]))?"
)
_DATE = re.compile(r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}")


def time_of(text: str) -> datetime | None:
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(each) for each in found.groups()[:6])
    micros = int((found[7] or "0").ljust(6, "0")[:6])
    try:
        local = datetime(year, month, day, hour, minute, second, micros, UTC)
        ahead = timedelta(hours=int(found[9] or 0), minutes=int(found[10] or 0))
        return local + ahead if found[8] == "-" else local - ahead
    except (ValueError, OverflowError):
        return None


def date_of(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        return None


def time_since(number: Decimal, unit: str) -> datetime | None:
    """A time as a number since 1970."""
    factor, digits = UNITS[unit]
    if not FIRST_MICROSECOND <= number * factor <= LAST_MICROSECOND:
        return None
    micros = number.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP) * factor
    return time_at(int(micros))


def time_at(microseconds: int) -> datetime | None:
    if not FIRST_MICROSECOND <= microseconds <= LAST_MICROSECOND:
        return None
    return EPOCH + timedelta(microseconds=microseconds)


def microseconds_of(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)
