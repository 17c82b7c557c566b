"""Which topics a subscription wants.

Two kinds of filter, both anchored: the whole topic has to match.

    LevelFilter   levels separated by `/`; `+` is exactly one level, a last `*` is one or more
    RegexFilter   a PCRE pattern

A filter is pure: `matches(topic)` is its definition. The broker's router finds the filters that
match a topic without asking each one; a property test holds it to this definition.
"""

import functools
import re
from dataclasses import dataclass, field
from typing import Any

import pcre2
from pcre2 import _cy

from headwater.errors import Code, Refusal

ONE_LEVEL = "+"
REST = "*"

# A step is cheap, unless it scans the whole topic. Measured: with the nastiest pattern we found,
# this many steps take 20 ms; with ordinary runaways less than 1 ms.
MATCH_LIMIT = 1_500

_LIMIT = f"(*LIMIT_MATCH={MATCH_LIMIT})"
# The package's own `compile` sets this option, and with it \x{61} is not what PCRE says.
_ALT_BSUX = 0x2
_REGEX_SPECIAL = frozenset("\\^$.[|()?*+{")


@dataclass(frozen=True, slots=True)
class LevelFilter:
    """A topic, or levels with wildcards. Build one with `parse` or `exact`."""

    text: str
    levels: tuple[str | None, ...]  # None stands for `+`
    rest: bool  # ends in `*`

    @classmethod
    def exact(cls, topic: str) -> "LevelFilter":
        return cls(topic, tuple(topic.split("/")), rest=False)

    @classmethod
    def parse(cls, text: str) -> "LevelFilter":
        if not text:
            raise Refusal(Code.MALFORMED, "the topic is empty")
        levels = text.split("/")
        rest = levels[-1] == REST
        if rest:
            levels.pop()
        if REST in levels:
            raise Refusal(Code.MALFORMED, f"'*' is only allowed as the last level: {text}")
        return cls(text, tuple(None if x == ONE_LEVEL else x for x in levels), rest)

    def matches(self, topic: str) -> bool:
        levels = topic.split("/")
        if len(levels) < len(self.levels) + self.rest:
            return False
        if len(levels) > len(self.levels) and not self.rest:
            return False
        pairs = zip(self.levels, levels, strict=False)  # what `*` stands for is longer
        return all(want is None or want == got for want, got in pairs)


@dataclass(frozen=True, slots=True)
class RegexFilter:
    """A PCRE pattern that has to match the whole topic. Build one with `parse`."""

    text: str
    _matches: Any = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> "RegexFilter | LevelFilter":
        """Compile; a pattern without any special character is simply a topic."""
        if text and not _REGEX_SPECIAL.intersection(text):
            return LevelFilter.exact(text)
        if text.startswith("(*"):
            # A verb of the client's own would override the limit below.
            raise Refusal(Code.MALFORMED, "patterns that begin with '(*' are not allowed")
        try:
            code = _cy.compile(_LIMIT + text, 0, _ALT_BSUX)
        except pcre2.LibraryError as error:
            raise Refusal(Code.MALFORMED, _without_our_verb(error)) from None
        pattern = pcre2.Pattern(code, text, pcre2.NOFLAG, False, None)
        return cls(text, functools.lru_cache(maxsize=1024)(_matcher(pattern)))

    def matches(self, topic: str) -> bool:
        return bool(self._matches(topic))


def _without_our_verb(error: Exception) -> str:
    """The position in the pattern as the client wrote it."""
    return "bad pattern: " + re.sub(
        r"(?<=position )\d+", lambda found: str(max(0, int(found[0]) - len(_LIMIT))), str(error)
    )


def _matcher(pattern: Any) -> Any:
    def matches(topic: str) -> bool:
        try:
            return pattern.fullmatch(topic) is not None
        except pcre2.LibraryError:
            return False  # the match limit: a pattern this costly matches nothing

    return matches


Filter = LevelFilter | RegexFilter
