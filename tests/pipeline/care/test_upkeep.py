"""Upkeep: fewer files, no old rows, and nobody notices but the disk. This part needs no Spark."""

import os
import random
import subprocess
import sys
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headwater.errors import ConfigError, HeadwaterError
from headwater.pipeline.care import retention, upkeep
from headwater.pipeline.care.retention import expire, kept_from, note, noted
from headwater.pipeline.care.upkeep import (
    UpkeepResult,
    clean,
    compact,
    every_seconds,
    keep,
    keep_all,
    tables_of,
)
from headwater.pipeline.contracts.reading import parse
from headwater.pipeline.project import project as projects
from headwater.pipeline.project.paths import STAGING
from headwater.pipeline.tables.delta import Table
from tests.pipeline.audit.test_audit import (
    CONTRACT,
    Shelf,
    differences,
    kept,
    remarks,
    shelf,
    silver,
)

__all__ = ["shelf"]

NOW = datetime.now(UTC)
TODAY = NOW.date()
MONTH_AGO = TODAY - timedelta(days=30)


class Clock(datetime):
    """It is always the time at which this file was read: tests may run over midnight."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return NOW.astimezone(tz)


@pytest.fixture(autouse=True)
def _same_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "datetime", Clock)


def add(table: Table, first: int, count: int, **columns: Any) -> None:
    """A file more: rows of one day, each with the same values."""
    content = {name: [value] * count for name, value in columns.items()}
    rows = pa.table({"offset": pa.array(range(first, first + count), pa.int64()), **content})
    by = ["date"] if "date" in columns else None
    write_deltalake(str(table.path), rows, mode="append", partition_by=by)


def offsets(table: Table) -> list[int]:
    found: list[int] = table.dataset().to_table().column("offset").to_pylist()
    return sorted(found)


def on_disk(table: Table) -> set[Path]:
    return {each for each in table.path.rglob("*.parquet*") if "_delta_log" not in each.parts}


# Retention


def test_whole_days_go_and_nothing_else(table: Table) -> None:
    days = [TODAY - timedelta(days=age) for age in (4, 3, 2, 1, 0)]
    for number, day in enumerate(days):
        add(table, 10 * number, 10, date=day)
    kept_files = {each.path for each in table.files() if each.partition["date"] >= days[2]}
    assert expire(table, "2d") == 20
    assert {each.path for each in table.files()} == kept_files  # none was written anew
    assert offsets(table) == list(range(20, 50))
    assert kept_from(table) == 20
    version = table.version
    assert expire(table, "2d") == 0
    assert table.version == version
    assert expire(table, "0s") == 20  # today is not over
    assert offsets(table) == list(range(40, 50)) and kept_from(table) == 40


def test_without_days_rows_go_by_their_time(table: Table) -> None:
    now = datetime.now(UTC)
    add(table, 0, 5, timestamp=now - timedelta(hours=3))
    add(table, 5, 5, timestamp=now - timedelta(hours=1))
    compact(table)
    assert expire(table, "2h") == 5
    assert offsets(table) == [5, 6, 7, 8, 9] and kept_from(table) == 5


def test_a_session_is_as_old_as_its_last_message(table: Table) -> None:
    old, now = datetime.now(UTC) - timedelta(days=9), datetime.now(UTC)
    add(table, 0, 1, first_seen=old, last_seen=now)
    add(table, 1, 1, first_seen=old, last_seen=old)
    assert expire(table, "7d") == 1
    assert offsets(table) == [0]


def test_a_retention_that_makes_no_sense(table: Table) -> None:
    add(table, 0, 1, date=TODAY)
    with pytest.raises(HeadwaterError, match='numbers must be a duration such as "30d", not "x"'):
        expire(table, "x")
    other = Table(table.path.parent / "other")
    add(other, 0, 1)
    with pytest.raises(HeadwaterError, match="no column that says how old a row is"):
        expire(other, "1d")
    done = {each.table: each for each in keep_all([other, table], {"other": "1d"})}
    assert "no column" in (done["other"].error or "") and done["numbers"].error is None


# Files


def test_small_files_become_few(table: Table) -> None:
    for number in range(12):
        add(table, 10 * number, 10, date=TODAY - timedelta(days=number % 2))
    planned = keep(table, dry=True)
    assert (planned.files_before, planned.files_after, planned.removed) == (12, 2, 0)
    assert table.version == 11
    done = keep(table)
    assert (done.files_before, done.files_after, len(table.files())) == (12, 2, 2)
    assert done.bytes_after == sum(each.path.stat().st_size for each in table.files())
    assert offsets(table) == list(range(120))
    version = table.version
    assert not keep(table).changed
    assert table.version == version  # what changes nothing is no version


def test_old_files_are_removed_and_no_others(table: Table) -> None:
    for number in range(5):
        add(table, number, 1)
    compact(table)
    week_ago = time.time() - 8 * 86400
    stray, fresh = table.path / "stray.parquet", table.path / "fresh.parquet"
    abandoned, busy = table.path / STAGING / "a", table.path / STAGING / "b"
    for place in (stray, fresh, abandoned / "x.parquet", busy / "y.parquet"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x")
    os.utime(stray, (week_ago, week_ago))
    for place in (abandoned / "x.parquet", abandoned, busy):  # in `busy` a file was just written
        os.utime(place, (week_ago, week_ago))
    assert clean(table, dry=True) == 2
    assert clean(table) == 2
    assert not stray.exists() and not abandoned.exists()
    assert fresh.exists() and busy.exists() and len(on_disk(table)) == 5 + 1 + 2
    assert clean(table, kept_hours=0) == 6  # those of older versions, and the fresh one
    assert on_disk(table) == {table.files()[0].path, busy / "y.parquet"}
    assert offsets(table) == [0, 1, 2, 3, 4]


COMPACTING = """
import sys
from pathlib import Path
from headwater.pipeline.tables.delta import Table
from headwater.pipeline.care.upkeep import compact
table = Table(Path(sys.argv[1]))
table.files()
print("go", flush=True)
compact(table)
"""


def _interrupted(table: Table, delay: float) -> bool:
    """Kill a process that compacts the table so long after it has begun a file; returns whether it
    was not ready."""
    before, version = on_disk(table), table.version
    with subprocess.Popen(
        [sys.executable, "-c", COMPACTING, str(table.path)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"go\n"
        while on_disk(table) == before and process.poll() is None:
            time.sleep(0.001)
        time.sleep(delay)
        process.kill()
    return on_disk(table) > before and table.version == version


@pytest.mark.torture
@pytest.mark.timeout(300)
def test_killed_in_the_middle_the_table_is_whole(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kill comes when a new file is there, but not committed: as soon as it is seen, and
    later ones a random moment after that. On a busy machine some come too late."""
    chance, rows = random.Random(1), 20_000
    for number in range(20):
        values = [chance.randbytes(40) for _ in range(rows)]
        part = pa.table({"offset": range(rows * number, rows * (number + 1)), "value": values})
        write_deltalake(str(table.path), part, mode="append")
    hits = 0
    for _ in range(20):
        version = table.version
        hits += _interrupted(table, chance.uniform(0, 0.02) if hits else 0.0)
        if table.version > version:  # it was ready, and the next one has to have something to do
            table.delta().restore(version)
        assert offsets(table) == list(range(20 * rows))
        if hits == 3:
            break
    assert hits, "no kill came at the right moment"
    monkeypatch.setattr(upkeep, "ABANDONED_SECONDS", 0.0)
    done = keep(table, kept_hours=0)
    assert done.files_after == 1 and offsets(table) == list(range(20 * rows))
    assert on_disk(table) == {table.files()[0].path}


# What the definitions say


def project_at(place: Path, **settings: str) -> projects.Project:
    (place / "transformations").mkdir(parents=True)
    (place / "transformations" / "t.py").write_text("# nothing\n")
    lines = [f"  headwater.{name}: {value}" for name, value in settings.items()]
    (place / "spark-pipeline.yml").write_text(
        "\n".join(["name: p", "storage: storage", "configuration:", "  spark.a: b", *lines])
    )
    return projects.load(place)


def test_what_was_noted_holds_until_the_definitions_change(tmp_path: Path) -> None:
    project = project_at(tmp_path / "p")
    assert noted(project) is None
    note(project, {"bronze": "30d"})
    assert noted(project) == {"bronze": "30d"}
    (project.root / "transformations" / "t.py").write_text("# something\n")
    assert noted(project) is None
    note(project, {})
    assert noted(project) == {}
    (project.state / "retention.json").write_text("{")
    assert noted(project) is None


def test_how_often(tmp_path: Path) -> None:
    assert every_seconds(project_at(tmp_path / "p")) == 600
    assert every_seconds(project_at(tmp_path / "q", **{"upkeep.every": "5s"})) == 5
    for wrong in ("often", "0s"):
        with pytest.raises(ConfigError, match=f'must be a duration such as "10m", not "{wrong}"'):
            every_seconds(project_at(tmp_path / wrong, **{"upkeep.every": wrong}))


def test_tables_with_many_small_files_do_not_wait(tmp_path: Path) -> None:
    project = project_at(tmp_path / "p")
    for name, files in (("many", 6), ("few", 2)):
        for number in range(files):
            add(Table(project.tables / name), number, 1)
    (project.tables / "no table").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "MANY_FILES", 5)
        done = list(keep_all(tables_of(project), {}, upkeep.is_scattered))
    assert [(each.table, each.files_before, each.files_after) for each in done] == [("many", 6, 1)]


# The audit afterwards


@pytest.fixture
def aged(shelf: Shelf) -> Shelf:
    """Bronze of 3000 records by day, a third of them a month old."""
    shelf.append("shop/x", *[b'{"id": "%d"}' % number for number in range(3000)])
    for low in range(0, 3000, 100):
        day = MONTH_AGO if low < 1000 else TODAY
        rows = shelf.log(low, low + 100).append_column("date", pa.array([day] * 100))
        write_deltalake(str(shelf.tables / "bronze"), rows, mode="append", partition_by=["date"])
    return shelf


def test_the_audit_is_right_after_compaction_and_retention(aged: Shelf) -> None:
    bronze = Table(aged.tables / "bronze")
    assert len(bronze.files()) == 30 and aged.audit().well
    done = keep(bronze, "7d", kept_hours=0)
    assert (done.expired, done.files_before, done.files_after) == (1000, 30, 1)
    report = aged.audit()
    assert report.well and (report.first, report.records) == (1000, 2000)
    assert remarks(report) == "rows of bronze before the offset 1000 were deleted by its retention"
    bronze.delta().delete("`offset` IN (1000, 2000)")  # this is no retention
    assert aged.audit().gaps == 2


def silver_rows(low: int, high: int, day: date, at: datetime) -> Any:
    rows = silver({each: str(each) for each in range(low, high)})
    rows = rows.set_column(2, "_timestamp", pa.array([at] * len(rows), pa.timestamp("us", "UTC")))
    wide = {f"more_{number}": ["x"] * len(rows) for number in range(40)}
    for name, values in wide.items():  # so many that Delta has no bounds of the last ones
        rows = rows.add_column(0, name, pa.array(values))
    return rows.append_column("date", pa.array([day] * len(rows)))


def test_rows_of_silver_that_retention_has_deleted_are_no_gaps(aged: Shelf) -> None:
    contract = parse(CONTRACT, Path("shop.yml"))
    month_ago = datetime.now(UTC) - timedelta(days=30)
    for low, high, day, at in (
        (0, 500, MONTH_AGO, month_ago),
        (500, 1000, MONTH_AGO, month_ago),
        (1000, 2000, TODAY, datetime.now(UTC)),
        (2000, 2900, TODAY, datetime.now(UTC)),
    ):
        aged.write("silver_shop", silver_rows(low, high, day, at))
    aged.write("quarantine", kept("shop", *range(2900, 3000)))
    assert aged.audit(contract).well
    done = keep(Table(aged.tables / "silver_shop"), "7d")
    assert done.expired == 1000 and done.files_after < done.files_before
    report = aged.audit(contract)
    assert report.well, differences(report)
    assert (
        "1000 records are before the offset 1000, and retention has deleted rows of that time"
        in remarks(report)
    )
    Table(aged.tables / "silver_shop").delta().delete("`_offset` = 1500")
    report = aged.audit(contract)  # nobody knows: a deleted row may have had its key
    assert report.well and "1 records may repeat a row" in remarks(report)
    Table(aged.tables / "quarantine").delta().delete("`offset` = 2950")
    aged.write("quarantine", kept("shop", 2950, 2951))
    assert aged.audit(contract).duplicates == 1


def test_a_gap_in_a_wide_table_is_found_after_compaction(aged: Shelf) -> None:
    """Delta's log has no bounds of `_offset` then."""
    contract = parse(CONTRACT, Path("shop.yml"))
    for low, high in ((0, 1000), (1000, 2999)):
        aged.write("silver_shop", silver_rows(low, high, TODAY, datetime.now(UTC)))
    table = Table(aged.tables / "silver_shop")
    compact(table)
    aged.write("silver_shop", silver_rows(2999, 3000, TODAY, datetime.now(UTC)))
    assert aged.audit(contract).well
    table.delta().delete("`_offset` = 2998")
    assert aged.audit(contract).gaps == 1


def test_what_is_told(table: Table) -> None:
    from headwater.cli.pipeline import _upkeep_words as words

    done = UpkeepResult("bronze", 12, 2, 4096, 1024, expired=7, removed=3)
    assert words(done, "30d", False) == (
        "bronze: 12 files (4.0 KiB) became 2 (1.0 KiB), 7 rows older than 30d deleted, "
        "3 old files removed"
    )
    assert words(done, "30d", True) == (
        "bronze: 12 files (4.0 KiB) would become about 2, 7 rows older than 30d would be deleted, "
        "3 old files would be removed"
    )
    assert (
        words(UpkeepResult("t", 2, 2, 10, 10), None, False)
        == "t: nothing to do, 2 files (10 bytes)"
    )
