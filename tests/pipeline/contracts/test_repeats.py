"""Repeats against a plain model, however the records are cut into batches."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.pipeline.contracts.reading import parse
from headwater.pipeline.contracts.repeats import DIGEST_BYTES, NO_KEY, SeenKeys, digests

WINDOW = 10
SECOND = 1_000_000


def key(number: int) -> bytes:
    """Many of them share their first half."""
    first, second = number % 3 + 1, number
    return first.to_bytes(8, "little") + second.to_bytes(8, "big") if number else NO_KEY


def packed(records: list[tuple[int, int]]) -> tuple[bytes, bytes]:
    times = np.array([time for _, time in records], np.int64) * SECOND
    return b"".join(key(number) for number, _ in records), times.tobytes()


def model(records: list[tuple[int, int]]) -> list[bool]:
    kept: dict[int, int] = {}
    found = []
    for number, time in records:
        repeated = number in kept and time - kept[number] <= WINDOW
        found.append(repeated)
        if number and not repeated:
            kept[number] = time
    return found


_records = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=80)


@pytest.mark.property
@settings(max_examples=300, deadline=None)
@given(_records, st.lists(st.integers(1, 20), max_size=10), st.booleans())
def test_repeats_are_those_of_the_model(
    steps: list[tuple[int, int]], cuts: list[int], restarted: bool
) -> None:
    times = np.cumsum([step for _, step in steps]).tolist()
    records = [(number, time) for (number, _), time in zip(steps, times, strict=True)]
    seen, found, at = SeenKeys(WINDOW), [], 0
    for size in [*cuts, len(records) or 1]:
        part = records[at : at + size]
        at += size
        found += seen.repeats(*packed(part)).tolist()
        if restarted:  # what was kept is found again in the table
            before = zip(records[:at], found, strict=True)
            kept = [each for each, repeated in before if not repeated]
            seen = SeenKeys(WINDOW)
            seen.add(*packed(kept))
    assert found == model(records)


def test_keys_are_forgotten_when_their_window_is_over() -> None:
    seen = SeenKeys(WINDOW)
    for batch in range(200):
        numbers = range(batch * 100 + 1, batch * 100 + 101)
        assert not seen.repeats(*packed([(each, batch) for each in numbers])).any()
    assert len(seen) < 4 * 100 * (WINDOW + 1)


def test_many_keys_are_quick() -> None:
    """A million keys are there, and each batch is looked up at once."""
    seen, source = SeenKeys(1e9), np.random.default_rng(1)
    for number in range(100):
        keys = source.bytes(10_000 * DIGEST_BYTES)
        times = np.full(10_000, number, np.int64).tobytes()
        assert not seen.repeats(keys, times).any()
    assert seen.repeats(keys, times).all()
    assert len(seen) == 1_000_000


def test_digests_differ_by_the_parts_of_a_key() -> None:
    text = "topics: [t]\nkey: [a, b, at]\nfields: {a: string, b: string, at: timestamp, n: long}"
    contract = parse(text, Path("t.yml"))
    stamp = pa.timestamp("us", tz="UTC")

    def rows(*values: tuple[Any, Any, Any]) -> Any:
        a, b, at = zip(*values, strict=True)
        return pa.table({"a": pa.array(a), "b": pa.array(b), "at": pa.array(at, stamp)})

    found = digests(
        contract,
        rows(("a", "bc", 1), ("ab", "c", 1), ("a", "bc", 2), ("a", None, 1), ("a", "bc", 1)),
    ).to_pylist()
    assert found[0] == found[4]
    assert len(set(found)) == 4
    assert found[3] == NO_KEY
