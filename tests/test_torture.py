"""The verdict of a torture, and what `python -m torture` makes of it."""

import sys
from pathlib import Path

import pytest

from torture import __main__ as program
from torture.verdict import Verdict, faults_about

GOOD = Verdict({"broker": 2}, sent=1200, acknowledged=1000, found=1100, lost=0, twice=0)
BAD = Verdict(
    {"broker": 1}, 9, 8, 7, lost=1, twice=0, faults=faults_about(acknowledged_and_lost=[b"p.3"])
)


def test_a_verdict_is_told_in_numbers() -> None:
    assert str(GOOD) == (
        "kills: 2 of the broker; sent 1,200, acknowledged 1,000, found 1,100, lost 0, twice 0"
    )
    assert str(BAD).endswith("lost 1, twice 0\nacknowledged and lost: 1, such as b'p.3'")


def test_anything_wrong_makes_it_bad() -> None:
    assert GOOD.good and not BAD.good
    assert not Verdict({}, 1, 1, 1, lost=0, twice=1).good
    assert not Verdict({}, 1, 1, 1, 0, 0, ("the broker ended with 1",)).good


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
    monkeypatch.setattr(sys, "argv", ["torture", "--only", "kill"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == code
    assert f"kill: {verdict}" in capsys.readouterr().out
