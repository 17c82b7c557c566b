"""Rates go on being measured, whatever happens to one measurement."""

import asyncio
from collections.abc import Iterator

import pytest

from headwater.admin import rates
from headwater.admin.rates import RateSampler
from headwater.traffic import Traffic


def test_a_measurement_that_fails_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rates, "SAMPLE_SECONDS", 0.001)
    totals = {"psmb": Traffic()}
    measured = 0

    def sample() -> Iterator[None]:
        nonlocal measured
        measured += 1
        if measured == 1:
            raise ValueError("no luck")
        totals["psmb"].messages_in += 100
        yield

    async def check() -> None:
        sampler = RateSampler(totals, sample)
        sampler.start()
        async with asyncio.timeout(30):
            while not sampler.rates()["psmb"].messages_in:
                await asyncio.sleep(0.001)
        sampler.stop()

    asyncio.run(check())
    assert "traffic could not be measured" in caplog.text
