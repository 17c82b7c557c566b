r"""PCRE patterns that match whole texts, cut off after a fixed number of steps.

Borrowed from the package `pcre2`: its inner `_cy.compile`, and the constructor of `Pattern`. The
package's own `compile` always sets PCRE2_ALT_BSUX, as JavaScript means it: `\x{61}` is then an `x`
and a repetition instead of an `a`. Only the inner function can leave an option out. If it changes,
nobody can subscribe with a pattern, and the error says which version to install.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pcre2

from headwater.borrowed import PCRE2

# A step is cheap, unless it scans the whole text. Measured: with the nastiest pattern we found,
# this many steps take 20 ms; with ordinary runaways less than 1 ms.
MATCH_LIMIT = 1_500

_LIMIT = f"(*LIMIT_MATCH={MATCH_LIMIT})"
_ALT_BSUX = 0x2


class PatternError(ValueError):
    """A pattern that PCRE cannot compile; says where."""


def compiled(text: str) -> Callable[[str], bool]:
    """Says of a text whether a pattern matches all of it."""
    check()
    try:
        pattern = _pattern(_LIMIT + text)
    except pcre2.LibraryError as error:
        raise PatternError(_without_limit(error)) from None

    def matches(topic: str) -> bool:
        try:
            return pattern.fullmatch(topic) is not None
        except pcre2.LibraryError:
            return False  # the match limit: a pattern this costly matches nothing

    return matches


@cache
def check() -> None:
    """Compare the package with what this module knows of it, once."""
    PCRE2.check_attributes("pcre2", pcre2, "_cy", "Pattern", "LibraryError", "NOFLAG")
    PCRE2.check_attributes("pcre2._cy", pcre2._cy, "compile")
    compile_names = ("pattern", "options", "disabled_options")
    PCRE2.check_parameters("pcre2._cy.compile", pcre2._cy.compile, *compile_names)
    names = ("pcre2_code", "pattern", "flags", "jit", "callout")
    PCRE2.check_parameters("pcre2.Pattern", pcre2.Pattern, *names)
    if _pattern(r"\x{61}").fullmatch("a") is None:
        raise PCRE2.changed(r"\x{61} does not match the letter a")


def _pattern(text: str) -> Any:
    code = pcre2._cy.compile(text, options=0, disabled_options=_ALT_BSUX)
    return pcre2.Pattern(code, text, flags=pcre2.NOFLAG, jit=False, callout=None)


def _without_limit(error: Exception) -> str:
    """The position in the pattern as it was given."""
    return re.sub(
        r"(?<=position )\d+", lambda found: str(max(0, int(found[0]) - len(_LIMIT))), str(error)
    )
