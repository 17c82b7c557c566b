"""What fuzzing is made of: marks in the code, mutations, the corpus, and what processes tell."""

import asyncio
import importlib
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from fuzz import branches, corpus, report
from fuzz.__main__ import options, plans
from fuzz.findings import Finding
from fuzz.mutation import LARGE, MOST_BYTES, MOST_LARGE_BYTES, Mutator
from fuzz.outcome import Outcome, Plan
from fuzz.pulse import Pulse
from fuzz.targets.base import Violation
from fuzz.targets.console import check_answer
from fuzz.targets.control import check_answers
from fuzz.targets.flight import check_error
from fuzz.turns import Turns

CODE = '''
"""A module that is watched."""
WORD = b"magic"


def sort(number):
    """It has a docstring."""
    if number > 5 and number % 2:
        return "odd"
    for each in range(number):
        if each == 3:
            break
    else:
        return "few"
    return "four" if number == 4 else WORD.decode()
'''


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "watched_module.py").write_text(CODE)
    branches.watch("watched_module")
    yield importlib.import_module("watched_module")
    del sys.modules["watched_module"]
    branches.forget_all()


def test_each_branch_is_fresh_once(watched: object) -> None:
    sort = vars(watched)["sort"]
    branches.forget_all()
    assert sort(1) == "few"
    first = branches.fresh()
    branches.know(first)
    assert sort(2) == "few"
    assert not branches.fresh()
    assert branches.FRESH not in branches.hits
    for number, result in ((7, "odd"), (4, "four"), (6, "magic")):
        assert sort(number) == result
        new = branches.fresh()
        assert new and set(new).isdisjoint(first)
        branches.know(new)
    assert branches.taken() >= len(first)


def test_words_are_the_constants_of_the_code(watched: object) -> None:
    assert {b"magic", b"odd"} <= set(branches.words("watched_module"))


def test_outcomes_are_branches_too() -> None:
    branches.forget_all()
    branches.outcome("bpsp", "Close", b"\0")
    (only,) = branches.fresh()
    assert only < branches.OUTCOMES
    branches.forget_all()


def test_a_seed_says_all_that_follows() -> None:
    inputs = [b'{"do": "a", "with": {"b": [1]}}\n', b"\x82\x85\0\0\0\0hello", b"MSG\0\0\0\5abcde"]
    one, other = (Mutator(inputs, [b"word"], 7, has_json=True) for _ in range(2))
    made = [one.next() for _ in range(3000)]
    assert made == [other.next() for _ in range(3000)]
    assert len(set(made)) > 2000
    assert max(map(len, made)) <= MOST_LARGE_BYTES
    assert sum(len(data) > MOST_BYTES for data in made) <= 3000 * LARGE * 5


def test_sizes_stay_true() -> None:
    """A mutation inside of what has its size in front of it is followed by the size."""
    mutator = Mutator([b"\0\5abcde"], [b"word"], 1)
    sizes = set()
    for _ in range(500):
        data = bytearray(b"\0\5abcde")
        mutator._resize(data)
        if data[:1] == b"\0" and len(data) - 2 == data[1]:
            sizes.add(data[1])
    assert len(sizes) > 5


def test_few_inputs_are_enough() -> None:
    found = {
        b"a": frozenset({1, 2}),
        b"bb": frozenset({1, 2, 3}),
        b"ccc": frozenset({1, 2, 3}),
        b"d": frozenset({4}),
        b"e": frozenset({9}),
    }
    assert corpus.enough(found, frozenset({9})) == [b"bb", b"d"]


def test_a_corpus_is_kept_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "ROOT", tmp_path)
    corpus.keep("one", [b"long\xff", b"\n", b"#"])
    assert corpus.kept("one") == [b"\n", b"#", b"long\xff"]
    (tmp_path / "regressions").mkdir()
    (tmp_path / "regressions" / "one.txt").write_text("# It crashed.\nb'\\x00'\n\n")
    assert corpus.regressions("one") == [b"\0"]
    with pytest.raises(ValueError, match="not an input"):
        corpus.read_input("'text'")


def test_two_inputs_with_one_fault_are_one_finding() -> None:
    trace = 'Traceback:\n  File "/a/b.py", line {}, in x\n    y\nValueError: {}'
    first, same = (Finding("t", trace.format(7, text), b"") for text in ("12 is odd", "3 is odd"))
    other = Finding("t", trace.format(8, "12 is odd"), b"")
    assert first.gist == same.gist != other.gist


def test_a_finding_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = Finding("psmb", "why", b"\0data").save()
    assert file.read_bytes() == b"\0data"
    given = options(["--target", "psmb", "--replay", str(file)])
    assert plans(given) == [Plan("psmb", 1, only=(b"\0data",))]


def test_replaying_needs_a_target() -> None:
    with pytest.raises(SystemExit):
        options(["--replay", "file"])


def test_what_processes_tell_each_other(tmp_path: Path) -> None:
    plan = Plan("any", 3, only=(b"\xff", b""))
    assert Plan.from_json(plan.to_json()) == plan
    outcome = Outcome("any", 3, 1.5, findings=[Finding("any", "why", b"\xff")])
    assert Outcome.from_json(outcome.to_json()) == outcome
    ours = Pulse.begun(tmp_path / "pulse")
    Pulse.joined(tmp_path / "pulse").beat(b"input")
    assert (ours.count, ours.data) == (1, b"input")


def test_the_report_has_a_line_for_each_target() -> None:
    outcome = Outcome("any", 2_000_000, 400.0, 7, 1234, 1.25, 100.0, 101.0)
    *_, line = report.markdown([outcome]).splitlines()
    assert line == "| any | 2,000,000 | 5,000 | 7 | 1,234 | 1.2 | 100 → 101 | +1.0 % | 0 |"


def test_bad_answers_are_noticed() -> None:
    with pytest.raises(Violation, match="1 answers to 2 requests"):
        check_answers(b'{"progress":{}}\n{"result":1}\n', 2)
    with pytest.raises(Violation, match="internal error"):
        check_answer(b"HTTP/1.1 500 Internal Server Error\r\n\r\n")
    with pytest.raises(Violation, match="is no answer"):
        check_answer(b"nonsense")
    with pytest.raises(Violation, match="a client is told"):
        check_error(Exception('Traceback: File "x.py"'))


def test_the_longest_turn_counts_and_not_all_of_them() -> None:
    clock = count(step=0.25).__next__

    async def in_turns() -> float:
        ticks = iter([1, 8, 1])
        async with Turns(clock) as turns:
            for often in ticks:
                for _ in range(often):
                    clock()  # a quarter of a second goes by
                await asyncio.sleep(0)
        return turns.longest

    # The eight, and the look at the clock itself.
    assert asyncio.run(in_turns()) == 8 * 0.25 + 0.25
