"""Where tables are and how they are written: the project's setting `headwater.format`.

    delta-rs        Delta, written through `deltalake`: needs no jar, exactly once (delta.py)
    parquet         plain files
    delta, iceberg  Spark's own, where its jar is there

The others than `delta-rs` are Spark's own sinks, with what these promise.
"""

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.pipeline.tables.delta import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

OURS = "delta-rs"
FORMATS = (OURS, "delta", "iceberg", "parquet")
#: What Spark says where a format is missing, or made for another Spark.
_NO_FORMAT = ("DATA_SOURCE_NOT_FOUND", "INCOMPATIBLE_DATASOURCE_REGISTER")


class TableStore:
    """The tables of a project."""

    def __init__(self, spark: "SparkSession", directory: Path, kind: str = OURS) -> None:
        self.spark, self.directory, self.format = spark, directory, kind
        if kind != OURS:
            _check_format(spark, directory, kind)

    @property
    def ours(self) -> bool:
        return self.format == OURS

    def path(self, name: str) -> Path:
        return self.directory / name

    def table(self, name: str) -> Table:
        return Table(self.path(name))

    def version(self, name: str) -> int:
        """Grows whenever the table changes; -1 if it does not exist."""
        if not self.ours:
            files = self.path(name).rglob("*") if self.path(name).exists() else ()
            return max((int(each.stat().st_mtime_ns) for each in files), default=-1)
        table = self.table(name)
        return table.version if table.exists else -1

    def schema(self, name: str) -> "StructType | None":
        """The columns on disk; None if the table does not exist."""
        if self.ours:
            table = self.table(name)
            return table.spark_schema if table.exists else None
        if self.version(name) < 0:
            return None
        return self.spark.read.format(self.format).load(str(self.path(name))).schema

    def batch(self, name: str, schema: "StructType") -> "DataFrame":
        from pyspark.sql.functions import lit

        if self.version(name) < 0:
            return self.spark.createDataFrame([], schema)
        if self.ours:
            frame = self.table(name).frame(self.spark)
        else:
            frame = self.spark.read.format(self.format).load(str(self.path(name)))
        missing = [field for field in schema if field.name not in frame.columns]
        return frame.withColumns({each.name: lit(None).cast(each.dataType) for each in missing})

    def stream(self, name: str, schema: "StructType") -> "DataFrame":
        from headwater.pipeline.tables.delta_source import NAME, TableSource

        reader: Any = self.spark.readStream
        if not self.ours:
            self.path(name).mkdir(parents=True, exist_ok=True)
            return reader.format(self.format).schema(schema).load(str(self.path(name)))  # type: ignore[no-any-return]
        self.spark.dataSource.register(TableSource)
        reader = reader.format(NAME).schema(schema).option("path", str(self.path(name)))
        return reader.load()  # type: ignore[no-any-return]


def _check_format(spark: "SparkSession", directory: Path, kind: str) -> None:
    """Spark finds formats when they are used, which is late; and says so in many words.

    So a table that does not exist is read: either the format is missing, or the table is."""
    try:
        spark.read.format(kind).load(str(directory / f"no-table-{uuid.uuid4()}"))
    except Exception as error:
        if any(each in str(error) for each in _NO_FORMAT):
            raise HeadwaterError(
                f"headwater.format is {kind}, but this Spark has no such format: add its jar with "
                f"spark.jars.packages in the project's configuration, or set it to {OURS}"
            ) from None
