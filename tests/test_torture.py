"""The verdict of a torture, the cycles that seeds choose, and what `python -m torture` makes of
them."""

import sys
import tempfile
from pathlib import Path
from random import Random

import pytest

from torture import __main__ as program
from torture import cycles
from torture.verdict import Verdict, faults_about

GOOD = Verdict({"broker killed": 2}, sent=1200, acknowledged=1000, found=1100, lost=0, twice=0)
BAD = Verdict(
    {"broker killed": 1, "operators refused": 1},
    *(9, 8, 7),
    lost=1,
    twice=0,
    faults=faults_about(acknowledged_and_lost=[b"p.3"]),
)
KIND = "pairs"
SEED = cycles.listed()[KIND][0]


def test_a_verdict_is_told_in_numbers() -> None:
    assert str(GOOD) == (
        "broker killed 2; sent 1,200, acknowledged 1,000, found 1,100, lost 0, twice 0"
    )
    assert str(BAD).startswith("broker killed 1, operators refused 1; sent 9, ")
    assert str(BAD).endswith("lost 1, twice 0\nacknowledged and lost: 1, such as b'p.3'")


def test_anything_wrong_makes_it_bad() -> None:
    assert GOOD.good and not BAD.good
    assert not Verdict({}, 1, 1, 1, lost=0, twice=1).good
    assert not Verdict({}, 1, 1, 1, 0, 0, ("the broker ended with 1",)).good


def test_the_listed_seeds_do_every_harm_often() -> None:
    listed = cycles.listed()
    assert list(listed) == list(cycles.KINDS)
    for kind, seeds in listed.items():
        wrong = [seed for seed in seeds if cycles.kind_of(seed) != kind]
        assert not wrong, f"these seeds are not of the kind {kind}; list others in their place"
    assert min(map(len, listed.values())) >= 6
    assert len(cycles.listed_seeds()) == len(set(cycles.listed_seeds())) == 200


def test_new_seeds_are_of_the_kind_that_was_asked_for() -> None:
    seeds = cycles.new_seeds(KIND, 5)
    assert [cycles.kind_of(seed) for seed in seeds] == [KIND] * 5


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    """What the program ends with."""
    monkeypatch.setattr(sys, "argv", ["torture", *arguments])
    with pytest.raises(SystemExit) as ended:
        program.main()
    return ended.value.code


@pytest.mark.parametrize(("verdict", "code"), [(GOOD, 0), (BAD, "bad: kill")])
def test_the_program_fails_when_a_verdict_is_bad(
    verdict: Verdict,
    code: int | str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def torture(directory: Path, cycles: int, seconds: float) -> Verdict:
        assert directory.is_dir()
        return verdict

    monkeypatch.setitem(program.TORTURES, "kill", torture)
    assert run(monkeypatch, "--only", "kill") == code
    assert f"kill: {verdict}" in capsys.readouterr().out


def test_a_seed_is_one_cycle_and_makes_the_same_choices_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen: list[tuple[Path, float]] = []

    def cycle(directory: Path, chance: Random) -> Verdict:
        assert directory.is_dir()
        chosen.append((directory, chance.random()))
        return GOOD

    monkeypatch.setitem(cycles.KINDS, KIND, cycle)
    assert run(monkeypatch, "--seed", str(SEED), "--seed", str(SEED)) == 0
    (first, draw), (second, same) = chosen
    assert draw == same and first != second
    assert not first.exists() and not second.exists()
    told = capsys.readouterr().out
    assert f"2/2 seed {SEED} ({KIND}, " in told and str(GOOD) in told
    assert f"{KIND}: 2 cycles, 0 bad" in told
    assert told.endswith("acknowledged 2,000, lost 0, twice 0\n")


def test_a_bad_cycle_says_how_to_repeat_it_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    outcomes: list[Verdict | AssertionError] = [BAD, AssertionError("not in time"), GOOD]

    def cycle(directory: Path, chance: Random) -> Verdict:
        outcome = outcomes.pop(0)
        if isinstance(outcome, AssertionError):
            raise outcome
        return outcome

    monkeypatch.setitem(cycles.KINDS, KIND, cycle)
    again = ["--seed", str(SEED)] * 3
    assert run(monkeypatch, *again) == f"bad: seed {SEED} ({KIND}), seed {SEED} ({KIND})"
    told = capsys.readouterr().out
    assert told.count(f'again: make torture ARGS="--seed {SEED}"; its files: {tmp_path}') == 2
    assert str(BAD) in told and "AssertionError: not in time" in told
    assert "3 cycles, 2 bad" in told
    assert len(list(tmp_path.iterdir())) == 2  # what is left of the bad ones
