"""The other formats of tables: plain Parquet works, those without a jar say so in one sentence."""

import json
from pathlib import Path

import pyarrow.dataset
import pytest

from headwater.errors import HeadwaterError
from headwater.pipeline.audit import Audit, Difference
from headwater.pipeline.run import runner
from headwater.pipeline.tables.spark_parquet import SparkParquetTable
from tests.cli.here import headwater_here
from tests.pipeline.conftest import BRONZE, Workbench
from tests.spark.conftest import numbered

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def plain(workbench: Workbench) -> Workbench:
    """A project with plain files."""
    workbench.settings["headwater.format"] = "parquet"
    workbench.define()
    return workbench


def offsets(workbench: Workbench) -> list[int]:
    """As Spark reads them, which knows what belongs to the table."""
    rows = workbench.spark.read.parquet(str(workbench.project.tables / "bronze")).select("offset")
    return sorted(row.offset for row in rows.collect())


def forget_last_batch(workbench: Workbench) -> None:
    """As if it had been killed after the rows were written, and before that was noted."""
    commits = workbench.project.checkpoints / "bronze" / "commits"
    max(commits.glob("[0-9]*"), key=lambda file: int(file.name)).unlink()


def test_plain_files_have_every_record_once(plain: Workbench) -> None:
    for first in range(0, 60, 20):
        plain.stand.append("shop/orders", *numbered(first, first + 20))
        plain.run()
        assert offsets(plain) == list(range(first + 20))
    plain.run()
    forget_last_batch(plain)
    plain.run()
    assert offsets(plain) == list(range(60))
    # Any tool reads them: directories are columns.
    place = plain.project.tables / "bronze"
    rows = pyarrow.dataset.dataset(place, format="parquet", partitioning="hive").to_table()
    assert rows.column("topic_group").unique().to_pylist() == ["shop"]
    assert sorted(map(int, rows.column("value").to_pylist())) == list(range(60))


def test_the_audit_of_plain_files(plain: Workbench) -> None:
    tables, flight = plain.project.tables, plain.stand.flight
    for number in range(12):  # so many that Spark puts its notes together
        plain.stand.append("a b/ü", b"%d" % number, b"\xff", b"")
        plain.run()
    names = {each.name for each in (tables / "bronze" / "_spark_metadata").iterdir()}
    assert any(name.endswith(".compact") for name in names)
    report = Audit(flight, tables).run()
    assert report.well and report.records == 36, report
    assert "only bronze is compared" in report.outcomes[0].remarks[-1]
    stray = tables / "bronze" / "stray.parquet"  # of a micro-batch that was killed
    (file, *_) = sorted(
        SparkParquetTable(tables / "bronze").files(), key=lambda each: str(each.stats)
    )
    stray.write_bytes(file.path.read_bytes())
    assert Audit(flight, tables).run().well
    first = file.stats["min"]["offset"]
    file.path.unlink()
    report = Audit(flight, tables).run()
    assert report.gaps == file.rows
    assert report.outcomes[0].differences[0] == Difference(
        "missing", first, first + file.rows - 1, file.rows
    )


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_format_without_its_jar_is_one_sentence(workbench: Workbench, kind: str) -> None:
    workbench.settings["headwater.format"] = kind
    workbench.define()
    workbench.stand.append("a", b"1")
    with pytest.raises(HeadwaterError) as error:
        workbench.run()
    assert str(error.value) == (
        f"headwater.format is {kind}, but this Spark has no such format: add its jar with "
        "spark.jars.packages in the project's configuration, or set it to delta-rs"
    )
    assert not workbench.project.tables.exists()


def test_what_plain_files_cannot_do_is_said(
    plain: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "FIRST_PAUSE", 0.01)
    root = plain.root
    plain.define(BRONZE + KEYED)
    plain.stand.append("a", b"1")
    run = runner.Runner(plain.project, plain.spark, once=True)
    assert not run.run()
    found = {each["name"]: each["error"] for each in run.state.as_dict()["tables"]}
    why = "the table counts has keys, which need headwater.format to be delta-rs"
    assert found == {"bronze": None, "counts": why}
    compacted = headwater_here("pipeline", "compact", cwd=root)
    assert compacted.stderr == (
        "headwater: error: headwater.format is parquet: compact works with delta-rs only\n"
    )
    written = json.loads((root / "spark-pipeline.yml").read_text())
    written["configuration"]["headwater.format"] = "orc"
    Path(root / "spark-pipeline.yml").write_text(json.dumps(written))
    wrong = headwater_here("pipeline", "status", cwd=root)
    assert 'must be one of delta-rs, delta, iceberg, parquet, not "orc"' in wrong.stderr


KEYED = """
@dp.table(table_properties={"headwater.keys": "topic"})
def counts():
    return source.frame().groupBy("topic").count()
"""
