"""Patterns of texts, as RE2 reads them.

RE2 takes time in proportion to the text, whatever the pattern and the text look like; Python's own
patterns can take years. So no text can stop a pipeline, and texts need no limit on their length.
Arrow applies RE2 to whole columns.
"""

from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_PREFIX = "Invalid regular expression: "
#: Longer texts are not remembered.
_SHORT = 256


def problem(pattern: str) -> str | None:
    """The fault of a pattern; None if it has none."""
    try:
        # By itself as well: `a)(b` would be fine where it is anchored.
        for each in (pattern, _anchored(pattern)):
            pc.match_substring_regex(pa.array([""]), each)
    except pa.ArrowInvalid as error:
        return str(error).removeprefix(_PREFIX)
    return None


def matching(pattern: str, texts: Any) -> Any:
    """Which texts match as a whole."""
    return pc.match_substring_regex(texts, _anchored(pattern))


def matches(pattern: str, text: str) -> bool:
    # Most of the time goes into reading the pattern, and many records have the same text.
    return (_matches_short if len(text) <= _SHORT else _matches)(pattern, text)


def _matches(pattern: str, text: str) -> bool:
    found: bool = matching(pattern, pa.scalar(text)).as_py()
    return found


_matches_short = lru_cache(maxsize=16_384)(_matches)


def _anchored(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"
