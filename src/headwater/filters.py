"""Which topics a subscription wants.

Three kinds of filter, all anchored: the whole topic has to match.

    LevelFilter     levels separated by `/`; `+` is exactly one level, a last `*` is one or more
    BindingFilter   levels separated by `/`; `*` is exactly one level, `#` anywhere is zero or more
    RegexFilter     a PCRE pattern

A filter is *simple* if a match takes a millisecond at most; that is known of all but some patterns.

A filter is pure: `matches(topic)` is its definition. The broker's router finds the filters that
match a topic without asking each one; a property test holds it to this definition.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headwater import pcre
from headwater.actions import AUDIT
from headwater.errors import Code, Refusal
from headwater.shapes import shape_of

ONE_LEVEL = "+"
REST = "*"

# In a binding the same signs mean other things.
ONE_WORD = "*"
ANY_WORDS = "#"

#: Topics whose first level is one of these are the broker's own: no wildcard reaches them.
RESERVED = frozenset((AUDIT, "$delayed"))

_REGEX_SPECIAL = frozenset("\\^$.[|()?*+{")


@dataclass(frozen=True, slots=True)
class LevelFilter:
    """A topic, or levels with wildcards. Build one with `parse` or `exact`."""

    text: str
    levels: tuple[str | None, ...]  # None stands for `+`
    rest: bool  # ends in `*`

    simple = True

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
class BindingFilter:
    """Levels, some of which are `*` or `#`. Build one with `parse`."""

    text: str
    words: tuple[str, ...]
    #: Topics whose first level is this one match only if the first word says it literally.
    reserved: str | None = None

    simple = True

    @classmethod
    def parse(cls, text: str, reserved: str | None = None) -> "BindingFilter | LevelFilter":
        """A binding without `#` means what a LevelFilter can say, and those are found faster."""
        if not text:
            raise Refusal(Code.MALFORMED, "the binding is empty")
        words = tuple(text.split("/"))
        reaches_reserved = reserved is not None and words[0] in (ONE_WORD, ANY_WORDS)
        if not reaches_reserved and words == (ANY_WORDS,):
            return LevelFilter(text, (), rest=True)
        if reaches_reserved or ANY_WORDS in words:
            return cls(text, words, reserved)
        levels = tuple(None if word == ONE_WORD else word for word in words)
        return LevelFilter(text, levels, rest=False)

    def matches(self, topic: str) -> bool:
        levels = topic.split("/")
        if levels[0] == self.reserved and self.words[0] != self.reserved:
            return False
        return _words_match(self.words, levels)


def _words_match(words: tuple[str, ...], levels: list[str]) -> bool:
    """When a word does not fit, the last `#` before it takes one more level: going back further
    would not find more. So the worst case is words times levels."""
    word = level = 0
    after_any: int | None = None  # the word behind the last `#`
    retry = 0  # the first level that this `#` has not taken
    while level < len(levels):
        if word < len(words) and words[word] == ANY_WORDS:
            word += 1
            after_any, retry = word, level
        elif word < len(words) and words[word] in (ONE_WORD, levels[level]):
            word, level = word + 1, level + 1
        elif after_any is None:
            return False
        else:
            retry += 1
            word, level = after_any, retry
    return all(each == ANY_WORDS for each in words[word:])


@dataclass(frozen=True, slots=True)
class RegexFilter:
    """A PCRE pattern that has to match the whole topic. Build one with `parse`."""

    text: str
    #: A match takes a millisecond at most.
    simple: bool = field(repr=False, compare=False)
    #: Every topic that it matches contains this.
    literal: str = field(repr=False, compare=False)
    _matches: Callable[[str], bool] = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> "RegexFilter | LevelFilter":
        """Compile; a pattern without any special character is simply a topic."""
        if text and not _REGEX_SPECIAL.intersection(text):
            return LevelFilter.exact(text)
        if text.startswith("(*"):
            # A verb of the client's own would override the limit of steps.
            raise Refusal(Code.MALFORMED, "patterns that begin with '(*' are not allowed")
        try:
            matches = pcre.compiled(text)
        except pcre.PatternError as error:
            raise Refusal(Code.MALFORMED, f"bad pattern: {error}") from None
        shape = shape_of(text)
        return cls(text, shape.simple, shape.literal, functools.lru_cache(maxsize=1024)(matches))

    def matches(self, topic: str) -> bool:
        return self._matches(topic)


Filter = LevelFilter | BindingFilter | RegexFilter


def names_reserved(wanted: Filter, topic: str) -> bool:
    """Whether a filter asks for what the broker itself writes, and does not only take it along."""
    level = topic.partition("/")[0]
    if isinstance(wanted, LevelFilter):
        return wanted.levels[:1] == (level,)
    if isinstance(wanted, RegexFilter):
        return level in wanted.literal or f"\\{level}" in wanted.text
    return wanted.words[:1] == (level,)


def wanting(filters: Sequence[Filter]) -> Callable[[str], bool]:
    """Says whether any of the filters wants a topic; each topic is looked at once."""
    known: dict[str, bool] = {}

    def wanted(topic: str) -> bool:
        if topic not in known:
            reserved = topic.partition("/")[0] in RESERVED
            known[topic] = any(
                each.matches(topic) and (not reserved or names_reserved(each, topic))
                for each in filters
            )
        return known[topic]

    return wanted
