"""Stages on disk: what is kept, what is dropped, and what a crash leaves behind."""

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.errors import HeadwaterError, Refusal
from headwater.flight.requests import WRITE_SCHEMA, Commit, Stage
from headwater.flight.rows import runs_of
from headwater.flight.stages import Stages
from tests.flight.client import rows


def stage(
    stages: Stages, batch: int, *values: bytes, partition: int = 0, attempt: str = "x"
) -> None:
    part = rows(*[("a", value) for value in values])
    stages.write(Stage("q", batch, partition, attempt), iter([part]), WRITE_SCHEMA)


def payloads(stages: Stages, files: tuple[Path, ...]) -> list[bytes]:
    return [each for batch in stages.rows(files) for each in batch.column(1).to_pylist()]


def test_an_intent_survives_and_names_its_files(tmp_path: Path) -> None:
    stages = Stages(tmp_path)
    stage(stages, 1, b"0", b"1")
    stage(stages, 1, b"2", partition=10)
    stage(stages, 1, b"3", partition=2)
    intent, resumed = stages.begin(Commit("q", 1, {"10": "x", "0": "x", "2": "x"}), 100)
    assert not resumed
    (found,) = Stages(tmp_path).intents()
    assert found == intent
    assert (found.query, found.batch, found.since) == ("q", 1, 100)
    assert payloads(stages, found.files) == [b"0", b"1", b"3", b"2"]  # by number, not by text
    again, resumed = stages.begin(Commit("q", 1, {"0": "x"}), 500)
    assert resumed
    assert again == intent


def test_finishing_forgets_the_intent_and_removes_the_files(tmp_path: Path) -> None:
    stages = Stages(tmp_path)
    stage(stages, 1, b"0")
    stage(stages, 2, b"1")
    stage(stages, 3, b"2")
    intent, _ = stages.begin(Commit("q", 2, {"0": "x"}), 0)
    stages.finish(intent, 40, 1)
    assert not stages.intents()
    done = stages.committed("q")
    assert done is not None
    assert (done.batch, done.first, done.count) == (2, 40, 1)
    left = [path.parent.name for path in tmp_path.rglob("*.arrow")]
    assert left == ["3"]  # batch 1 was given up when batch 2 came


def test_a_large_file_stays_mapped_while_someone_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.flight.stages.LARGE_BYTES", 0)
    stages = Stages(tmp_path)
    stage(stages, 1, b"x" * 100_000, b"y" * 100_000)
    intent, _ = stages.begin(Commit("q", 1, {"0": "x"}), 0)
    found = stages.rows(intent.files)
    (batch,) = found
    stages.finish(intent, 0, 2)  # which removes the file
    found.let_go()
    assert batch.column(1)[1].as_py() == b"y" * 100_000
    assert not found.close()
    del batch
    assert found.close()


def test_rows_that_were_damaged_are_not_appended(tmp_path: Path) -> None:
    stages = Stages(tmp_path)
    stage(stages, 1, b"0", b"1")
    intent, _ = stages.begin(Commit("q", 1, {"0": "x"}), 0)
    (file,) = intent.files
    content = file.read_bytes()
    for position in range(len(content)):
        file.write_bytes(
            content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :]
        )
        with pytest.raises(Refusal, match=r"q/1/0\.x\.arrow is damaged: stage it again"):
            payloads(stages, intent.files)
        file.write_bytes(content[:position])
        with pytest.raises(Refusal, match="is damaged"):
            payloads(stages, intent.files)
    stage(stages, 1, b"0", b"1")
    assert payloads(stages, intent.files) == [b"0", b"1"]


def test_a_damaged_database_is_named(tmp_path: Path) -> None:
    stages = Stages(tmp_path)
    stage(stages, 1, b"0")
    stages.begin(Commit("q", 1, {"0": "x"}), 0)
    database = tmp_path / "flight.db"
    database.write_bytes(database.read_bytes().replace(b"q/1/0.x", b"q/1/1.x"))
    with pytest.raises(HeadwaterError, match=r"flight\.db cannot be used: it is damaged"):
        stages.check()


@pytest.mark.parametrize("used", [False, True])
def test_a_database_that_is_gone_or_empty_is_told_if_it_was_used(
    tmp_path: Path, used: bool
) -> None:
    stages = Stages(tmp_path)
    assert ("missing or empty" in (stages.lost(used) or "")) is used
    assert not stages.check()
    assert stages.lost(used) is None
    (tmp_path / "flight.db").write_bytes(b"")
    said = "flight.db is missing or empty" if used else "flight.db is empty: if batches were"
    assert (stages.lost(used) or "").startswith(said)


def test_a_database_with_batches_is_used(tmp_path: Path) -> None:
    begun: list[bool] = []
    stages = Stages(tmp_path, begun=lambda: begun.append(True))
    stage(stages, 1, b"0")
    assert not stages.check()
    intent, _ = stages.begin(Commit("q", 1, {"0": "x"}), 0)
    assert begun and stages.check()
    stages.finish(intent, 0, 1)
    assert stages.check()


def test_an_intent_is_in_the_database_before_rows_are_appended(tmp_path: Path) -> None:
    """Also while someone else has it open, and SQLite would keep it in the file beside it."""
    stages = Stages(tmp_path)
    stage(stages, 1, b"0")
    with closing(sqlite3.connect(tmp_path / "flight.db")) as other:
        stages.check()
        other.execute("SELECT count(*) FROM intents").fetchone()
        intent, _ = stages.begin(Commit("q", 1, {"0": "x"}), 0)
        assert not (tmp_path / "flight.db-wal").stat().st_size
        assert Stages(tmp_path).intents() == [intent]


def test_a_part_that_was_not_staged_is_named(tmp_path: Path) -> None:
    stages = Stages(tmp_path)
    stage(stages, 1, b"0")
    with pytest.raises(Refusal, match="partition 1 of batch 1 of q"):
        stages.begin(Commit("q", 1, {"0": "x", "1": "x"}), 0)
    assert not stages.intents()


@pytest.mark.parametrize(
    ("query", "attempt"), [("", "x"), ("q" * 201, "x"), ("q", "../x"), ("q", "a/b")]
)
def test_names_stay_inside_the_directory(tmp_path: Path, query: str, attempt: str) -> None:
    with pytest.raises(Refusal):
        Stages(tmp_path).write(Stage(query, 1, 0, attempt), iter(()), WRITE_SCHEMA)


@pytest.mark.parametrize("query", ["..", ".", "a/../../b", "/etc", "ä ö", "%2E"])
def test_any_query_has_a_folder_of_its_own(tmp_path: Path, query: str) -> None:
    stages = Stages(tmp_path)
    stages.write(Stage(query, 1, 0, "x"), iter([rows(("a", b"0"))]), WRITE_SCHEMA)
    (found,) = tmp_path.rglob("*.arrow")
    assert found.parent.parent.parent == tmp_path / "stages"


def test_abandoned_stages_are_dropped_but_not_those_of_an_intent(tmp_path: Path) -> None:
    stages = Stages(tmp_path)
    stage(stages, 1, b"0")
    stages.write(Stage("other", 1, 0, "x"), iter([rows(("a", b"1"))]), WRITE_SCHEMA)
    stages.write(Stage("fresh", 1, 0, "x"), iter([rows(("a", b"2"))]), WRITE_SCHEMA)
    stages.begin(Commit("q", 1, {"0": "x"}), 0)
    old = time.time() - 1000
    for query in ("q", "other"):
        os.utime(tmp_path / "stages" / query / "1", (old, old))
    assert stages.drop_abandoned(500) == 1
    left = {path.parent.parent.name for path in tmp_path.rglob("*.arrow")}
    assert left == {"q", "fresh"}


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> object:
        yield rows(("a", b"0"))
        raise OSError("the client went away")

    with pytest.raises(OSError, match="went away"):
        Stages(tmp_path).write(Stage("q", 1, 0, "x"), broken(), WRITE_SCHEMA)  # type: ignore[arg-type]
    assert not [path for path in (tmp_path / "stages").rglob("*") if path.is_file()]


def test_rows_become_runs_of_equal_topic_and_headers() -> None:
    headers = pa.map_(pa.string(), pa.string())
    table = pa.record_batch(
        {
            "topic": pa.array(["a", "a", "b", "b", "a"]),
            "value": pa.array([b"0", b"1", b"2", b"3", b"4"]),
            "headers": pa.array([None, None, [("k", "v")], [], None], headers),
        }
    )
    found = [(run.topic, run.headers, list(run.payloads)) for run in runs_of([table], "p")]
    assert found == [
        ("a", (), [b"0", b"1"]),
        ("b", (("k", "v"),), [b"2"]),
        ("b", (), [b"3"]),
        ("a", (), [b"4"]),
    ]
    assert [list(run.payloads) for run in runs_of([table, table], "p", skip=7)] == [
        [b"2"],
        [b"3"],
        [b"4"],
    ]


def test_large_stretches_are_cut_for_subscribers() -> None:
    big = rows(*[("a", bytes(1000))] * 5000)
    sizes = [run.size for run in runs_of([big], "p")]
    assert sum(sizes) == 5_000_000
    assert max(sizes) <= 600_000
