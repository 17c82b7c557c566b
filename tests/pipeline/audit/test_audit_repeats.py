"""Which missing records the audit takes for repeats: only those that are.

The window is ten seconds. Records come when `times` says. The first and the last one have the same
key.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from headwater.pipeline.audit import Audit, Difference, tables
from headwater.pipeline.contracts.reading import parse
from tests.pipeline.audit.test_audit import CONTRACT, STAMP, Shelf, kept, shelf, silver
from tests.pipeline.conftest import BRONZE, Workbench

__all__ = ["shelf"]


class Timed:
    """A bronze of which the times are known."""

    def __init__(self, shelf: Shelf, times: list[int]) -> None:
        self.shelf, self.times = shelf, times
        shelf.append("shop/x", *[b'{"id": "%d"}' % (0 if n in ENDS else n) for n in range(6)])
        log = shelf.log()
        stamps = pa.array([each * 10**6 for each in times], STAMP)
        shelf.write("bronze", log.set_column(3, "timestamp", stamps))

    def keep(self, *offsets: int) -> None:
        """These are in silver."""
        ids = {each: "0" if each in ENDS else str(each) for each in offsets}
        times = {each: self.times[each] for each in offsets}
        self.shelf.write("silver_shop", silver(ids, times))

    def audit(self) -> tuple[list[Difference], str]:
        contract = parse(CONTRACT + "dedupe_window: 10s\n", Path("shop.yml"))
        (found,) = tables.compare(self.shelf.tables, [contract], 0, 6)
        return found.differences, "; ".join(found.remarks)


#: These two have the same key; the last one is in no table, but for those that say so.
ENDS = (0, 5)
#: The last one came long after the key was forgotten.
LONG = [0, 1, 25, 26, 27, 40]
FORGOTTEN = (
    [Difference("missing", 5, 5, 1)],
    "1 of the missing have the key of a row, but one that dedupe_window does not reach",
)
LEFT_OUT: tuple[list[Difference], str] = ([], "1 duplicates by key were left out")


@pytest.fixture
def ends(shelf: Shelf) -> Callable[..., Timed]:
    def make(times: list[int], *kept: int) -> Timed:
        made = Timed(shelf, times)
        made.keep(*kept)
        shelf.write("quarantine", kept_until(6))
        return made

    return make


def kept_until(end: int) -> Any:
    """Somebody else's record, which says how far the query has come."""
    return kept("another", end - 1)


@pytest.mark.parametrize("last", [11, 40])
def test_a_key_that_was_forgotten_explains_nothing(ends: Callable[..., Timed], last: int) -> None:
    assert ends([0, 1, 2, 3, 4, last], 0, 1, 2, 3, 4).audit() == FORGOTTEN


@pytest.mark.parametrize("last", [4, 9, 10])
def test_a_key_of_the_window_explains_it(ends: Callable[..., Timed], last: int) -> None:
    assert ends([0, 1, 2, 3, 4, last], 0, 1, 2, 3, 4).audit() == LEFT_OUT


def test_after_a_redrive_any_row_with_the_key_explains_it(ends: Callable[..., Timed]) -> None:
    made = ends(LONG, 0, 1, 2, 3, 4)
    write_deltalake(
        str(made.shelf.tables / "quarantine"),
        kept("another", 4),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction("redrive", 1)]),
    )
    assert made.audit() == LEFT_OUT


def test_a_lost_record_is_missing_although_it_was_repeated(ends: Callable[..., Timed]) -> None:
    differences, _ = ends([0, 1, 2, 3, 4, 5], 1, 2, 3, 4, 5).audit()
    assert differences == [Difference("missing", 0, 0, 1)]


@pytest.mark.parametrize("window", [1, 4, 1000])
def test_two_rows_with_one_key(
    ends: Callable[..., Timed], window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "WINDOW", window)
    made = ends([0, 1, 2, 3, 4, 9], 0, 1, 2, 3, 4, 5)
    differences, said = made.audit()
    assert differences == [Difference("repeated", 5, 5, 1)]
    assert said == "1 rows repeat the key of another one within dedupe_window"


@pytest.mark.parametrize("window", [1, 1000])
def test_two_rows_with_one_key_that_came_far_apart(
    ends: Callable[..., Timed], window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "WINDOW", window)
    assert ends([0, 1, 2, 3, 4, 11], 0, 1, 2, 3, 4, 5).audit() == ([], "")


# With Spark


WINDOW = """
topics: shop/.*
fields:
  id: {type: string, required: true}
key: [id]
dedupe_window: 1s
"""


@pytest.mark.timeout(300)  # two runs on Spark, and maybe its start
def test_what_the_pipeline_forgets_is_what_the_audit_says(workbench: Workbench) -> None:
    stand = workbench.stand
    workbench.define(BRONZE + "from headwater.pipeline import contracts\ncontracts.define()\n")
    (workbench.root / "contracts").mkdir()
    (workbench.root / "contracts" / "shop.yml").write_text(WINDOW)
    contracts = [parse(WINDOW, Path("shop.yml"))]

    def come(*ids: str) -> None:
        stand.append("shop/x", *[b'{"id": "%s"}' % each.encode() for each in ids])

    def audit() -> tuple[int, int, str]:
        found = Audit(stand.flight, workbench.project.tables, contracts).run()
        return found.gaps, found.duplicates, "; ".join(found.outcomes[1].remarks)

    come("a", "a", "b")  # within the window
    time.sleep(1.5)
    come("c", "a")
    workbench.run()
    assert workbench.column("_offset", "silver_shop") == [0, 2, 3, 4]
    assert audit() == (0, 0, "1 duplicates by key were left out")
    workbench.table("silver_shop").delta().delete("_offset = 4")
    come("f")
    workbench.run()
    gaps, duplicates, said = audit()
    assert (gaps, duplicates) == (1, 0)
    assert "1 of the missing have the key of a row" in said
