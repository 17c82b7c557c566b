"""The audit finds what is wrong, exactly, and nothing else. Most of this needs no Spark."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from headwater.errors import HeadwaterError
from headwater.pipeline.audit import Audit, AuditReport, Difference, checksum, records
from headwater.pipeline.audit.batches import AuditedBatch, AuditedBatches, check
from headwater.pipeline.contracts import Contract
from headwater.pipeline.contracts.reading import parse
from headwater.pipeline.repair.replay import Replay, ReplayPace, ReplayRequest
from headwater.pipeline.tables.delta import Table
from headwater.spark.flight_client import FlightClient
from tests.e2e.process import BrokerProcess, eventually
from tests.flight.client import Client, rows
from tests.pipeline.conftest import Workbench

STAMP = pa.timestamp("us", tz="UTC")
CONTRACT = """
topics: shop/.*
fields:
  id: {type: string, required: true}
  price: {type: double}
key: [id]
"""


class Shelf:
    """A broker, and tables that were made from its log without Spark."""

    def __init__(self, process: BrokerProcess, tables: Path) -> None:
        self.process, self.tables = process, tables
        self.client = Client(process.ports["flight"])
        self._sequence = 0

    @property
    def broker(self) -> FlightClient:
        return FlightClient((f"127.0.0.1:{self.process.ports['flight']}",))

    def append(self, topic: str, *values: bytes) -> None:
        self._sequence += 1
        command = {"do": "append", "producer": "tests", "sequence": self._sequence}
        self.client.put(rows(*[(topic, value) for value in values]), **command)

    def log(self, start: int = 0, end: int | None = None) -> Any:
        end = self.broker.log().end if end is None else end
        return self.client.read(start=start, end=end, headers=True)

    def write(self, name: str, content: Any) -> None:
        write_deltalake(str(self.tables / name), content, mode="append", schema_mode="merge")

    def fill(self, start: int = 0, end: int | None = None, step: int = 1000) -> None:
        """Bronze, one file for each step."""
        for low in range(start, end or self.broker.log().end, step):
            self.write("bronze", self.log(low, min(low + step, self.broker.log().end)))

    def audit(self, *contracts: Contract, **limits: int) -> AuditReport:
        return Audit(self.broker, self.tables, contracts, **limits).run()

    def file_with(self, offset: int) -> Path:
        (found,) = [
            each.path
            for each in Table(self.tables / "bronze").files()
            if each.stats["min"]["offset"] <= offset <= each.stats["max"]["offset"]
        ]
        return found


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    small = {"HEADWATER_LOG_SEGMENT_BYTES": "64KiB"}
    with BrokerProcess(tmp_path / "data", **small) as process:
        made = Shelf(process, tmp_path / "tables")
        yield made
        made.client.close()


@pytest.fixture
def filled(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """5000 records, in five files."""
    monkeypatch.setattr(records, "RANGE", 700)
    for topic in ("a", "b"):
        shelf.append(topic, *[b"%s %d" % (topic.encode(), n) for n in range(2500)])
    shelf.fill()
    return shelf


def differences(report: AuditReport) -> list[Difference]:
    return [each for outcome in report.outcomes for each in outcome.differences]


def remarks(report: AuditReport) -> str:
    return "; ".join(each for outcome in report.outcomes for each in outcome.remarks)


def test_all_is_well(filled: Shelf) -> None:
    report = filled.audit()
    assert report.well and report.records == 5000
    assert (report.first, report.last, report.gaps, report.duplicates) == (0, 4999, 0, 0)
    assert remarks(report) == ""


def test_a_file_that_is_gone(filled: Shelf) -> None:
    filled.file_with(2500).unlink()
    report = filled.audit()
    assert differences(report) == [
        Difference("missing", 2000, 2099, 100),
        Difference("missing", 2100, 2799, 700),
        Difference("missing", 2800, 2999, 200),
    ]
    assert report.gaps == 1000
    assert "is gone" in remarks(report)


def test_rows_that_are_there_twice(filled: Shelf) -> None:
    filled.write("bronze", filled.log(1234, 1236))
    filled.write("bronze", filled.log(1235, 1236))
    report = filled.audit()
    assert differences(report) == [Difference("repeated", 1234, 1235, 3)]
    assert (report.gaps, report.duplicates) == (0, 3)


@pytest.mark.parametrize("column", ["topic", "value", "timestamp", "publisher", "headers"])
def test_a_row_that_was_changed(filled: Shelf, column: str) -> None:
    place = filled.file_with(4321)
    content = pq.read_table(place)
    values = content[column].to_pylist()
    values[321] = {"topic": "c", "value": b"b 1822", "publisher": "", "headers": [("a", "")]}.get(
        column, values[320]
    )
    if column == "timestamp":
        values[321] = values[320].replace(year=2020)
    number = content.schema.get_field_index(column)
    changed = pa.array(values, content.schema.field(column).type)
    pq.write_table(content.set_column(number, content.schema.field(column), changed), place)
    assert differences(filled.audit()) == [Difference("changed", 4321, 4321, 1)]


def test_a_row_that_was_exchanged_for_another(filled: Shelf) -> None:
    """The count is the same."""
    place = filled.file_with(0)
    content = pq.read_table(place)
    pq.write_table(pa.concat_tables([content.slice(0, 999), content.slice(5, 1)]), place)
    assert sorted(map(str, differences(filled.audit()))) == sorted(
        map(str, [Difference("missing", 999, 999, 1), Difference("repeated", 5, 5, 1)])
    )


def test_with_many_ranges_that_differ_only_numbers_are_told(
    filled: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "EXAMINED", 1)
    filled.file_with(2500).unlink()
    report = filled.audit()
    assert report.gaps == 1000
    assert len(differences(report)) == 3


def test_what_is_newer_than_bronze_is_lag(filled: Shelf) -> None:
    filled.append("a", *[b"x"] * 10)
    report = filled.audit()
    assert report.well
    assert remarks(report) == "10 records are newer than the last batch of bronze"


def test_what_retention_has_taken_is_only_in_bronze(filled: Shelf) -> None:
    for _ in range(5):
        filled.append("big", *[bytes(1000)] * 100)
    filled.fill(5000)
    filled.process.keep_ports()
    filled.process.stop()
    filled.process.set(HEADWATER_LOG_RETENTION_BYTES="64KiB")
    filled.process.start()
    for _ in eventually(60):  # it drops file by file, and says so when it is done
        if done := re.search(r"retention dropped the offsets 0 to (\d+)", filled.process.log):
            break
    report = filled.audit()
    assert report.well and report.records == 5500
    assert done is not None
    taken = int(done[1]) + 1
    assert f"retention has taken {taken} records from the log" in remarks(report)
    assert filled.broker.log().start == taken
    filled.file_with(0).unlink()
    assert filled.audit().gaps == 1000


def test_a_part_of_the_log(filled: Shelf) -> None:
    filled.file_with(0).unlink()
    assert filled.audit(first=1000).well
    assert filled.audit(end=10).gaps == 10
    assert filled.audit(first=990, end=1010).gaps == 10


def test_another_log(filled: Shelf) -> None:
    strange = filled.log(4999, 5000)
    offset = pa.array([7000], pa.int64())
    filled.write("bronze", strange.set_column(0, "offset", offset))
    with pytest.raises(HeadwaterError, match="this is not the log that it was made from"):
        filled.audit()


def test_there_is_no_bronze_yet(shelf: Shelf) -> None:
    with pytest.raises(HeadwaterError, match="there is no table bronze"):
        shelf.audit()


def test_checksums_do_not_care_where_a_batch_was_cut(filled: Shelf) -> None:
    batch = filled.log().combine_chunks().to_batches()[0]
    whole = checksum.of_records(batch)
    assert (checksum.of_records(batch.slice(100, 50)) == whole[100:150]).all()
    assert len(set(whole.tolist())) == len(whole)


# Contracts


@pytest.fixture
def shop(shelf: Shelf) -> Shelf:
    """A shop with four good records, a duplicate, one that is late and three bad ones."""
    values = [
        b'{"id": "a", "price": 1}',
        b'{"id": "b", "price": 2}',
        b"no JSON",
        b'{"id": "a", "price": 1}',
        b'{"id": "c"}',
        b'{"id": 7}',
        b"[]",
        b'{"id": "late"}',
        b'{"id": "d"}',
    ]
    shelf.append("shop/x", *values)
    shelf.append("other", b"{}")
    shelf.fill()
    shelf.write("silver_shop", silver({0: "a", 1: "b", 4: "c", 8: "d"}))
    shelf.write("quarantine", kept("shop", 2, 5, 6))
    shelf.write("late", kept("shop", 7))
    return shelf


def silver(ids: dict[int, str], times: dict[int, int] | None = None) -> Any:
    """Rows by offset; they came just now, unless `times` has other seconds."""
    offsets, seconds = pa.array(list(ids), pa.int64()), times or {}
    now = int(time.time())
    stamps = pa.array([seconds.get(each, now) * 10**6 for each in ids], STAMP)
    return pa.table({"id": list(ids.values()), "_offset": offsets, "_timestamp": stamps})


def kept(contract: str, *offsets: int) -> Any:
    return pa.table(
        {"offset": pa.array(offsets, pa.int64()), "contract": [contract] * len(offsets)}
    )


def contract() -> Contract:
    return parse(CONTRACT, Path("shop.yml"))


def test_each_record_is_in_one_table(shop: Shelf) -> None:
    report = shop.audit(contract())
    assert report.well, differences(report)
    assert "1 duplicates by key were left out" in remarks(report)


def test_a_record_that_is_in_no_table(shop: Shelf) -> None:
    shop.append("shop/y", b'{"id": "e"}', b'{"id": "f"}')
    shop.fill(10)
    assert "2 records are newer than what its tables have seen" in remarks(shop.audit(contract()))
    shop.write("silver_shop", silver({11: "f"}))
    assert differences(shop.audit(contract())) == [Difference("missing", 10, 10, 1)]


def test_a_batch_that_not_all_tables_have_yet(shop: Shelf) -> None:
    """A pipeline that runs, or was killed, between two of its tables: nothing is missing yet."""
    checkpoint = shop.tables.parent / "checkpoints" / "contracts"
    noted(checkpoint, 0, 10)
    shop.append("shop/y", b"no JSON", b'{"id": "f"}', b'{"id": "g"}')
    shop.fill(10)
    shop.write("silver_shop", silver({11: "f"}))
    (checkpoint / "offsets" / "1").write_text('v1\n{}\n{"offset": 13}')  # it has begun
    report = shop.audit(contract())
    assert report.well, differences(report)
    assert "2 records are newer than what its tables have seen" in remarks(report)
    noted(checkpoint, 1, 13)
    assert differences(shop.audit(contract())) == [
        Difference("missing", 10, 10, 1),
        Difference("missing", 12, 12, 1),
    ]


def noted(checkpoint: Path, batch: int, end: int) -> None:
    """A batch is finished, as Spark writes it."""
    for folder, content in (("offsets", f'{{"offset": {end}}}'), ("commits", "{}")):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
        (checkpoint / folder / str(batch)).write_text(f"v1\n{{}}\n{content}")
        (checkpoint / folder / f".{batch}.crc").write_bytes(b"crc")


def test_a_record_that_is_in_two_tables(shop: Shelf) -> None:
    shop.write("late", kept("shop", 1, 2))
    shop.write("late", kept("another", 4))
    assert differences(shop.audit(contract())) == [Difference("repeated", 1, 2, 2)]


def test_a_row_that_comes_from_nowhere(shop: Shelf) -> None:
    shop.write("quarantine", kept("shop", 9))
    assert differences(shop.audit(contract())) == [Difference("strange", 9, 9, 1)]


def test_a_table_that_a_redrive_has_changed(shop: Shelf) -> None:
    """Files that a merge has written have other types than those of Spark."""
    quarantine = Table(shop.tables / "quarantine")
    gone = kept("shop", 5)
    merger = quarantine.delta().merge(gone, "t.offset = s.offset", "s", "t")
    merger.when_matched_delete().execute()
    assert differences(shop.audit(contract())) == [Difference("missing", 5, 5, 1)]
    shop.write("silver_shop", silver({5: "g"}))
    assert shop.audit(contract()).well


def test_records_that_went_back_to_their_topic(shop: Shelf) -> None:
    Table(shop.tables / "quarantine").delta().delete("offset = 5")
    assert differences(shop.audit(contract())) == [Difference("missing", 5, 5, 1)]
    shop.write("redriven", kept("shop", 5))
    assert shop.audit(contract()).well


def test_a_record_that_was_late_is_no_repeat(shop: Shelf) -> None:
    """It has the key of a row of silver, but belongs into another table."""
    shop.append("shop/x", b'{"id": "a", "at": "2020-01-01T00:00:00Z"}', b'{"id": "e"}')
    shop.fill(10)
    shop.write("silver_shop", silver({11: "e"}))
    timed = CONTRACT.replace("fields:\n", "event_time: at\nfields:\n  at: {type: timestamp}\n")
    report = shop.audit(parse(timed, Path("shop.yml")))
    assert differences(report) == [Difference("missing", 10, 10, 1)]


# Batches


def batch(first: int, last: int, rows: int | None = None, filled: bool = False) -> AuditedBatch:
    return AuditedBatch(first, last, last - first + 1 if rows is None else rows, filled)


@pytest.mark.parametrize(
    ("written", "lost", "expected"),
    [
        ([batch(0, 9), batch(10, 19)], [], []),
        ([batch(0, 9), batch(11, 19)], [], [Difference("missing", 10, 10, 1)]),
        ([batch(0, 9), batch(8, 19)], [], [Difference("repeated", 8, 9, 2)]),
        ([batch(0, 9, 8)], [], [Difference("missing", 0, 9, 2)]),
        ([batch(0, 9, 11)], [], [Difference("repeated", 0, 9, 1)]),
        ([batch(0, 9), batch(15, 19)], [batch(10, 14, 0)], []),
        ([batch(0, 9), batch(10, 14, 5, True), batch(15, 19)], [], []),
    ],
)
def test_batches_follow_each_other(
    written: list[AuditedBatch], lost: list[AuditedBatch], expected: list[Difference]
) -> None:
    assert check("bronze", AuditedBatches(written, lost)).differences == expected


@pytest.mark.smoke
@pytest.mark.timeout(300)  # three runs on Spark, and maybe its start
def test_the_tables_of_a_pipeline(workbench: Workbench) -> None:
    """What the runner writes, over two runs and a rebuild, equals the log."""
    stand = workbench.stand
    workbench.define()
    for _ in range(2):
        stand.append("a", *[b"%d" % n for n in range(100)])
        stand.publish("b/c", b"1", b"2", name="value")
        workbench.run()
    tables = workbench.project.tables
    report = Audit(stand.flight, tables).run()
    assert report.well and report.records == 204
    again = Replay("r", workbench.project.storage, stand.flight)
    again.begin(ReplayRequest("bronze", where="topic = 'b/c' AND publisher = 'bob'", to="again"))
    assert again.run(ReplayPace()).rows == 4
    workbench.run(refresh=["bronze"])
    report = Audit(stand.flight, tables).run()
    assert report.well and report.records == 208
    assert len(report.outcomes[-1].remarks) == 0 and report.outcomes[-1].records == 208
    (dropped, *_) = workbench.table().files()
    dropped.path.unlink()
    assert not Audit(stand.flight, tables).run().well


def test_json_of_a_report(filled: Shelf) -> None:
    from headwater.cli.pipeline_proof import as_dict

    filled.file_with(0).unlink()
    found = json.loads(json.dumps(as_dict(filled.audit())))
    assert (found["gaps"], found["duplicates"], found["well"]) == (1000, 0, False)
    assert found["outcomes"][0]["differences"][0] == {
        "kind": "missing",
        "first": 0,
        "last": 699,
        "count": 700,
    }
