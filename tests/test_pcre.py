"""PCRE patterns, and what is borrowed from the package `pcre2` for them."""

from collections.abc import Iterator
from typing import Any

import pcre2
import pytest

from headwater import pcre
from headwater.errors import HeadwaterError


@pytest.fixture(autouse=True)
def unchecked() -> Iterator[None]:
    """Whatever a test takes away is looked for again."""
    pcre.check.cache_clear()
    yield
    pcre.check.cache_clear()


def test_the_package_is_as_we_know_it() -> None:
    pcre.check()


def test_escapes_mean_what_pcre_says() -> None:
    assert pcre.compiled(r"\x{61}+")("aaa")
    assert pcre.compiled(r"\x{2f}")("/")
    assert not pcre.compiled(r"\x{61}")("x" * 61)


def test_a_bad_pattern_is_told_with_its_position() -> None:
    with pytest.raises(pcre.PatternError, match="position 2"):
        pcre.compiled("(a")


def test_the_packages_own_function_still_cannot_do_it() -> None:
    """When this fails, `pcre2.compile` may take the place of what is borrowed."""
    assert pcre2.compile(r"\x{61}").fullmatch("a") is None


def test_without_the_inner_function_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pcre2, "_cy")
    with pytest.raises(HeadwaterError, match=r"pcre2 has no _cy; install pcre2==0\.7\.1"):
        pcre.compiled("a+")


def test_other_parameters_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        @staticmethod
        def compile(pattern: str, options: int = 0) -> Any: ...

    monkeypatch.setattr(pcre2, "_cy", Other)
    with pytest.raises(HeadwaterError, match="compile has no parameter disabled_options; install"):
        pcre.compiled("a+")
