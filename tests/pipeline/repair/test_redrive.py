"""Quarantined records once more, with real tables, also after a kill in the middle."""

from pathlib import Path
from typing import Any

import pytest

from headwater.pipeline.contracts.reading import parse
from headwater.pipeline.contracts.source import QUARANTINE
from headwater.pipeline.repair.redrive import QuarantineRedrive, QuarantineSelection
from tests.pipeline.conftest import Stand
from tests.pipeline.contracts.test_tables import ORDERS, Lake, order

pytestmark = pytest.mark.timeout(400)

LOOSER = ORDERS.replace("min: 0", "min: -5")


@pytest.fixture
def lake(stand: Stand, tmp_path: Path) -> Lake:
    """Six records in quarantine: three fit a looser contract, of which one is a repeat."""
    made = Lake(stand, tmp_path / "lake", ORDERS)
    stand.append("orders/a", order(1, price=1), order(2, price=-1), order(3, price=-9))
    stand.append("orders/b", order(1, price=-2), order(4, price=-3), b"{", b"\xff")
    made.run()
    return made


def redrive(lake: Lake, text: str = LOOSER) -> QuarantineRedrive:
    contract = parse(text, Path("orders.yml"))
    return QuarantineRedrive(lake.directory, [contract])


def silent(done: int, total: int) -> None: ...


def rules(lake: Lake) -> list[str]:
    return [rule for (rule,) in lake.rows(QUARANTINE, "rule")]


@pytest.mark.smoke
def test_records_that_fit_now_become_rows(lake: Lake) -> None:
    assert rules(lake) == ["json", "range", "range", "range", "range", "utf8"]
    looked = redrive(lake).look(QuarantineSelection())
    assert len(rules(lake)) == 6  # nothing has happened yet
    done = redrive(lake).to_tables(QuarantineSelection(), silent)
    assert done == looked
    assert (done.records, done.silver, done.repeated) == (6, {"orders": 2}, 1)
    assert done.stayed == {"json": 1, "range": 1, "utf8": 1}
    assert lake.rows("silver_orders", "id", "price") == [(1, 1.0), (2, -1.0), (4, -3.0)]
    ((reason,),) = [r for r in lake.rows(QUARANTINE, "reason") if "price" in r[0]]
    assert reason.endswith("it has to be at least -5.0")  # the reason that holds now
    again = redrive(lake).to_tables(QuarantineSelection(), silent)
    assert (again.silver, again.repeated, again.records) == ({}, 0, 3)


def test_only_what_is_selected(lake: Lake) -> None:
    done = redrive(lake).to_tables(QuarantineSelection("orders", "json"), silent)
    assert (done.records, done.stayed) == (1, {"json": 1})
    assert len(rules(lake)) == 6


def test_killed_before_records_left_quarantine(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(QuarantineRedrive, "_change", killed)
        with pytest.raises(KeyboardInterrupt):
            redrive(lake).to_tables(QuarantineSelection(), silent)
    lake.stand.append("orders/a", order(5, price=-1))  # and the pipeline went on meanwhile
    lake.run()
    redrive(lake).to_tables(QuarantineSelection(), silent)
    assert [each for (each,) in lake.rows("silver_orders", "id")] == [1, 2, 4, 5]
    assert rules(lake) == ["json", "range", "utf8"]


@pytest.mark.smoke
def test_back_to_the_topic_exactly_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    stand = lake.stand
    before = len(stand.values("orders/b"))

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(QuarantineRedrive, "_merge", killed)  # published, but still in quarantine
        with pytest.raises(KeyboardInterrupt):
            redrive(lake).to_topic(QuarantineSelection(rule="range"), stand.flight, silent)
    done = redrive(lake).to_topic(QuarantineSelection(rule="range"), stand.flight, silent)
    assert done.published == 4
    assert stand.values("orders/b")[before:] == [order(1, price=-2), order(4, price=-3)]
    assert rules(lake) == ["json", "utf8"]
