"""Spark's readers, taught the names of a project while a definition is evaluated.

Borrowed from PySpark: its public methods are replaced by functions with the same parameters.

    SparkSession.table, DataFrameReader.table    the rows of now
    DataStreamReader.table                       the rows as they are added
    SparkSession.sql                             a statement with names of the project
    SparkSession.readStream                      where a range of the log is read in its place

There is no public way. A temporary view is either a stream or not, while a definition may ask for
both with one name; and a table in Spark's catalog would be written to what belongs to its users. If
a method gets other parameters, `resolving` raises, and no definition is evaluated.

Only the thread that evaluates sees the names, and only as long as that takes; in all others the
methods do what they always did. One definition is evaluated at a time.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from headwater.borrowed import PYSPARK


class NameResolver(Protocol):
    """What a project knows about names. None means that a name is Spark's business."""

    def batch_table(self, name: str) -> DataFrame | None: ...

    def stream_table(self, name: str) -> DataFrame | None: ...

    def prepare(self, statement: str) -> str:
        """Make the names in a statement known to Spark; returns the statement to run."""
        ...

    def stream_reader(self) -> Any | None:
        """Takes the place of `spark.readStream`."""
        ...


_turn = threading.RLock()
_resolver: ContextVar[NameResolver | None] = ContextVar("resolver", default=None)


@contextmanager
def resolving(resolver: NameResolver) -> Iterator[None]:
    """Let Spark's readers ask the resolver, in this thread."""
    with _turn:
        outermost = _resolver.get() is None
        token = _resolver.set(resolver)
        try:
            with _replaced() if outermost else nullcontext():
                yield
        finally:
            _resolver.reset(token)


@contextmanager
def _replaced() -> Iterator[None]:
    check()
    replacements: list[tuple[type, str, Any]] = [
        (SparkSession, "table", _table(SparkSession.table, "batch_table")),
        (DataFrameReader, "table", _table(DataFrameReader.table, "batch_table")),
        (DataStreamReader, "table", _table(DataStreamReader.table, "stream_table")),
        (SparkSession, "sql", _sql(SparkSession.sql)),
        (SparkSession, "readStream", _read_stream(SparkSession.readStream)),
    ]
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in replacements]
    try:
        for owner, name, replacement in replacements:
            setattr(owner, name, replacement)
        yield
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)


def _table(original: Callable[..., DataFrame], method: str) -> Callable[..., DataFrame]:
    def table(self: Any, tableName: str) -> DataFrame:
        resolver = _resolver.get()
        found = None if resolver is None else getattr(resolver, method)(tableName)
        return original(self, tableName) if found is None else found

    return table


def _sql(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    def sql(self: Any, sqlQuery: str, *args: Any, **kwargs: Any) -> DataFrame:
        resolver = _resolver.get()
        statement = sqlQuery if resolver is None else resolver.prepare(sqlQuery)
        return original(self, statement, *args, **kwargs)

    return sql


def _read_stream(original: Any) -> property:
    def read_stream(self: Any) -> Any:
        resolver = _resolver.get()
        found = None if resolver is None else resolver.stream_reader()
        return original.fget(self) if found is None else found

    return property(read_stream)


def check() -> None:
    """Compare PySpark with what this module knows of it."""
    for owner in (SparkSession, DataFrameReader, DataStreamReader):
        if "table" not in vars(owner):
            raise PYSPARK.changed(f"{owner.__name__} has no table")
        PYSPARK.check_parameters(f"{owner.__name__}.table", owner.table, "self", "tableName")
    if "sql" not in vars(SparkSession):
        raise PYSPARK.changed("SparkSession has no sql")
    PYSPARK.check_parameters("SparkSession.sql", SparkSession.sql, "self", "sqlQuery")
    if not isinstance(vars(SparkSession).get("readStream"), property):
        raise PYSPARK.changed("SparkSession has no property readStream")
