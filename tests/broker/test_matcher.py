"""Patterns that are matched by another process, a real one."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headwater.broker.matching import matcher as module
from headwater.broker.matching.matcher import Matcher

# Found by an attack: every step scans the whole topic for the characters of many scripts.
SCRIPTS = ("Greek", "Cyrillic", "Armenian", "Hebrew", "Arabic", "Syriac", "Thaana", "Bengali")
HOSTILE = "(?:(?=[^" + "".join([rf"\p{{{each}}}" for each in SCRIPTS * 7]) + "]*+).)*"


def with_matcher(check: Callable[[Matcher], Awaitable[None]]) -> None:
    async def main() -> None:
        made = Matcher()
        try:
            await check(made)
        finally:
            await made.close()

    asyncio.run(main())


async def ask(matcher: Matcher, pattern: str, topic: str) -> bool | None:
    """What it says; None: the pattern is refused."""
    answer: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
    matcher.forget(pattern)  # or what an earlier question gave would be called
    matcher.ask(
        pattern, topic, lambda _, found: answer.set_result(found), lambda: answer.set_result(None)
    )
    async with asyncio.timeout(60):
        return await answer


def refused() -> None:
    pytest.fail("it was refused")


def test_it_says_what_pcre_says() -> None:
    async def check(matcher: Matcher) -> None:
        assert await ask(matcher, "(?i)a/B", "A/b") is True
        assert await ask(matcher, "(?i)a/B", "A/c") is False
        assert await ask(matcher, r"(\w)\1", "xx") is True
        assert await ask(matcher, r"(\w)\1", "é\n") is False

    with_matcher(check)


def test_a_pattern_that_takes_too_long_is_refused_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LONGEST_SECONDS", 0.001)

    async def check(matcher: Matcher) -> None:
        assert await ask(matcher, "(?i)a", "a") is True  # the first: the process has started
        assert await ask(matcher, HOSTILE, "a" * 1024) is None
        assert await ask(matcher, "(?i)b", "B") is True
        assert (matcher.asked, matcher.refused) == (3, 1)

    with_matcher(check)


def test_a_pattern_has_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUDGET_SECONDS", 0.0)
    monkeypatch.setattr(module, "BUDGET_SHARE", 0.0)

    async def check(matcher: Matcher) -> None:
        assert await ask(matcher, "(?i)a", "a") is None

    with_matcher(check)


def test_a_process_that_ended_is_started_again() -> None:
    async def check(matcher: Matcher) -> None:
        assert await ask(matcher, "(?i)a", "a") is True
        assert matcher._process is not None
        matcher._process.kill()
        await matcher._process.wait()
        assert await ask(matcher, "(?i)a", "a") is True

    with_matcher(check)


def test_who_has_cost_least_is_asked_first() -> None:
    async def check(matcher: Matcher) -> None:
        order: list[str] = []
        for number in range(3):
            matcher.ask("(?i)a", f"{number}", lambda topic, _: order.append(topic), refused)
        assert await ask(matcher, "(?i)b", "b") is True
        assert len(order) < 3
        while len(order) < 3:
            await asyncio.sleep(0.001)
        assert order == ["0", "1", "2"]

    with_matcher(check)


def test_what_is_forgotten_is_not_answered() -> None:
    async def check(matcher: Matcher) -> None:
        matcher.ask("(?i)x", "x", lambda *_: pytest.fail("it was forgotten"), refused)
        matcher.forget("(?i)x")
        assert await ask(matcher, "(?i)a", "a") is True

    with_matcher(check)


def test_of_a_pattern_that_is_refused_it_is_said_once_however_much_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LONGEST_SECONDS", 0.001)

    async def check(matcher: Matcher) -> None:
        assert await ask(matcher, "(?i)a", "a") is True  # the process has started
        told: list[str] = []
        for number in range(100):
            topic = "a" * 1024 + str(number)
            matcher.ask(HOSTILE, topic, lambda topic, _: None, lambda: told.append("refused"))
        while not told:
            await asyncio.sleep(0.001)
        assert await ask(matcher, "(?i)b", "B") is True
        assert told == ["refused"]

    with_matcher(check)
