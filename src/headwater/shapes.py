"""What a PCRE pattern tells without being asked: whether it is simple, and what it must contain.

PCRE counts steps, and a step can cost anything: a lookahead with classes of scripts takes hundreds
of milliseconds for one topic. A pattern is *simple* if it is made of nothing but characters,
classes of characters, groups and repetitions of what holds no repetition itself. Then a step is a
scan of the topic at most, and the limit of steps is a limit of time. All others are matched
elsewhere.

Most patterns contain text that every topic they match contains, too. Looking for that takes a
hundredth of the time of a match, and most topics have it not.
"""

import re
from typing import NamedTuple

# More repetitions without an end than this are not worth the doubt.
MOST_REPETITIONS = 16

_CHARACTER = re.compile(r"[^\\^$.\[|()?*+{]|\\[^A-Za-z0-9]")
_KIND = re.compile(r"\.|\\[dDsSwW]")
_CLASS = re.compile(r"\[\^?\]?(?:[^\\\[\]]|\\[^A-Za-z0-9]|\\[dDsSwW])*\]")
_QUANTIFIER = re.compile(r"(?:([*+?])|\{(\d{1,3})(?:(,)(\d{0,3}))?\})[?+]?")
_ANCHOR = re.compile(r"[\^$]")


class PatternShape(NamedTuple):
    simple: bool
    #: Every topic that it matches contains this.
    literal: str = ""


NOT_SIMPLE = PatternShape(False)


def shape_of(text: str) -> PatternShape:
    """Never raises: what this does not understand is not simple."""
    reader = _Reader(text)
    try:
        literals = reader.alternatives()
    except _NotSimpleError:
        return NOT_SIMPLE
    if reader.at < len(text) or reader.repetitions > MOST_REPETITIONS:
        return NOT_SIMPLE
    return PatternShape(True, max(literals, key=len, default=""))


class _NotSimpleError(Exception):
    pass


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0
        self.repetitions = 0

    def alternatives(self, depth: int = 0) -> list[str]:
        """Up to the end of the group; the literals that all of it must contain."""
        if depth > 20:
            raise _NotSimpleError
        literals = self._sequence(depth)
        while self._text.startswith("|", self.at):
            self.at += 1
            self._sequence(depth)
            literals = []  # of several, none must be there
        return literals

    def _sequence(self, depth: int) -> list[str]:
        literals, run = [], ""
        while self.at < len(self._text) and self._text[self.at] not in "|)":
            character, inner = self._atom(depth)
            least, endless = self._quantifier()
            if endless:
                self.repetitions += 1
            if character and least == 1 and not endless:
                run += character
                continue
            if character and least:
                run += character
            literals.append(run)
            run = ""
            if least:
                literals += inner
        return [*literals, run]

    def _atom(self, depth: int) -> tuple[str, list[str]]:
        """A character, if it is one, or the literals within a group."""
        text, at = self._text, self.at
        if found := _CHARACTER.match(text, at):
            self.at = found.end()
            return found[0][-1], []
        for each in (_KIND, _CLASS, _ANCHOR):
            if found := each.match(text, at):
                self.at = found.end()
                return "", []
        if not text.startswith("(", at):
            raise _NotSimpleError
        self.at += 3 if text.startswith("(?:", at) else 1
        if text.startswith(("?", "*"), self.at):
            raise _NotSimpleError
        before = self.repetitions
        literals = self.alternatives(depth + 1)
        if not text.startswith(")", self.at):
            raise _NotSimpleError
        self.at += 1
        if self.repetitions > before and _QUANTIFIER.match(text, self.at):
            raise _NotSimpleError  # a repetition of repetitions
        return "", literals

    def _quantifier(self) -> tuple[int, bool]:
        """How often at least, and whether there is no end to it, or hardly any."""
        found = _QUANTIFIER.match(self._text, self.at)
        if found is None:
            if self._text.startswith("{", self.at):
                raise _NotSimpleError
            return 1, False
        self.at = found.end()
        sign, least, comma, most = found.groups()
        if sign:
            return int(sign == "+"), sign != "?"
        return int(least), (bool(comma) and (not most or int(most) > 1)) or int(least) > 1
