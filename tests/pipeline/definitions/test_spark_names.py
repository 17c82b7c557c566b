"""Spark's readers while a definition is evaluated. No Spark is started."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from headwater.errors import HeadwaterError
from headwater.pipeline.definitions import spark_names
from headwater.pipeline.definitions.spark_names import resolving

TABLES = (SparkSession, DataFrameReader, DataStreamReader)


class Resolver:
    """Knows `bronze`, and no other name."""

    def __init__(self, reader: str | None = None) -> None:
        self._reader = reader

    def batch_table(self, name: str) -> Any:
        return "rows of now" if name == "bronze" else None

    def stream_table(self, name: str) -> Any:
        return "rows as they are added" if name == "bronze" else None

    def prepare(self, statement: str) -> str:
        return statement.replace("bronze", "prepared")

    def stream_reader(self) -> Any:
        return self._reader


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Readers that need no Java."""
    for owner in TABLES:
        monkeypatch.setattr(owner, "table", lambda self, tableName: f"Spark's {tableName}")
    monkeypatch.setattr(SparkSession, "sql", lambda self, sqlQuery, args=None, **kwargs: sqlQuery)
    monkeypatch.setattr(SparkSession, "readStream", property(lambda self: "Spark's reader"))
    before = [vars(owner)["table"] for owner in TABLES]
    more = [vars(SparkSession)[name] for name in ("sql", "readStream")]
    yield
    assert [vars(owner)["table"] for owner in TABLES] == before
    assert [vars(SparkSession)[name] for name in ("sql", "readStream")] == more


def read(name: str) -> list[Any]:
    """A table in each way that a definition has."""
    session = SparkSession.__new__(SparkSession)
    reader = DataFrameReader.__new__(DataFrameReader)
    stream = DataStreamReader.__new__(DataStreamReader)
    return [session.table(name), reader.table(tableName=name), stream.table(name)]


RESOLVED = ["rows of now", "rows of now", "rows as they are added"]
SPARKS = ["Spark's bronze"] * 3


def test_names_of_the_project_are_resolved_while_it_lasts() -> None:
    assert read("bronze") == SPARKS
    with resolving(Resolver()):
        assert read("bronze") == RESOLVED
        assert read("other") == ["Spark's other"] * 3
    assert read("bronze") == SPARKS


def test_statements_are_prepared_and_their_arguments_kept() -> None:
    session: Any = SparkSession.__new__(SparkSession)
    with resolving(Resolver()):
        assert session.sql("SELECT 1 FROM bronze", {"a": 1}) == "SELECT 1 FROM prepared"
        assert session.sql(sqlQuery="FROM bronze", args=None, more=2) == "FROM prepared"
    assert session.sql("FROM bronze") == "FROM bronze"


def test_a_reader_can_take_the_place_of_streams() -> None:
    session: Any = SparkSession.__new__(SparkSession)
    with resolving(Resolver()):
        assert session.readStream == "Spark's reader"
        with resolving(Resolver("a range")):
            assert session.readStream == "a range"
        assert session.readStream == "Spark's reader"
    assert session.readStream == "Spark's reader"


def test_other_threads_do_not_see_the_names() -> None:
    seen: list[list[Any]] = []
    with resolving(Resolver()):
        thread = threading.Thread(target=lambda: seen.append(read("bronze")))
        thread.start()
        thread.join()
    assert seen == [SPARKS]


def test_one_definition_is_evaluated_at_a_time() -> None:
    order: list[str] = []

    def second() -> None:
        with resolving(Resolver()):
            order.append("second")

    thread = threading.Thread(target=second)
    with resolving(Resolver()):
        thread.start()
        assert read("bronze") == RESOLVED
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_after_an_error_all_is_as_before() -> None:
    with pytest.raises(ValueError, match="wrong"), resolving(Resolver()):
        raise ValueError("wrong")
    assert read("bronze") == SPARKS


def test_another_signature_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(DataStreamReader, "table", lambda self, name: None)
        with (
            pytest.raises(HeadwaterError, match=r"table has no parameter tableName; install"),
            resolving(Resolver()),
        ):
            pytest.fail("it was evaluated")


def test_a_method_that_is_gone_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.delattr(SparkSession, "sql")
        with pytest.raises(HeadwaterError, match="SparkSession has no sql; install pyspark=="):
            spark_names.check()


class TestPySpark:
    """The real methods."""

    @pytest.fixture(autouse=True)
    def spark(self) -> None:
        """Nothing takes their place."""

    def test_it_is_as_we_know_it(self) -> None:
        spark_names.check()
