"""A Delta table as it is on disk: its files and its rows."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: Says of each row of a record batch whether it is wanted.
Wanted = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table."""

    path: Path
    rows: int
    partition: dict[str, Any]
    #: `min` and `max`, each by column, as far as they are known.
    stats: dict[str, Any] = field(default_factory=dict)
    bytes: int = 0


class StoredTable:
    """A Delta table to read. It may not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path).absolute()
        self._known: DeltaTable | None = None

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def exists(self) -> bool:
        if not (self.path / "_delta_log").is_dir():
            self._known = None  # it was dropped
            return False
        return self._known is not None or DeltaTable.is_deltatable(str(self.path))

    @property
    def version(self) -> int:
        return self.delta().version()

    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.schema(self.delta().schema())

    @property
    def spark_schema(self) -> "StructType":
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.delta().schema().to_json()))

    @property
    def partition_columns(self) -> list[str]:
        return list(self.delta().metadata().partition_columns)

    def delta(self) -> DeltaTable:
        """The newest version, as deltalake sees it."""
        if self._known is None:
            if not self.exists:
                raise HeadwaterError(f"there is no table {self.name} in {self.path.parent} yet")
            self._known = DeltaTable(str(self.path))
        else:
            self._known.update_incremental()
        return self._known

    def files(self) -> list[TableFile]:
        return files_of(self.delta(), self.path)

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """The rows of the newest version. Columns that a file lacks are null."""
        schema, files = self.spark_schema, self.files()
        if not files:
            return spark.createDataFrame([], schema)
        reader = spark.read.schema(schema).option("basePath", str(self.path))
        frame = reader.option("__globPaths__", "false").parquet(*[str(each.path) for each in files])
        return frame.select(*[f"`{name}`" for name in schema.names])

    def dataset(self) -> Any:
        """The rows of the newest version as a pyarrow.dataset.Dataset."""
        return dataset_of(self.delta(), self.path)

    def rows(self, columns: Sequence[str], wanted: Wanted | None = None) -> Any:
        """Columns of the rows that are wanted (a mask, of each record batch) as a pyarrow.Table."""
        schema = pa.schema([self.arrow_schema.field(name) for name in columns])
        batches = self.dataset().to_batches(columns=list(columns))
        found = [batch if wanted is None else batch.filter(wanted(batch)) for batch in batches]
        return pa.Table.from_batches(found, schema)

    def last_batch(self, query: str) -> int | None:
        """The last batch of a query that is in the table."""
        return self.delta().transaction_version(query) if self.exists else None


def files_of(delta: DeltaTable, path: Path) -> list[TableFile]:
    """The files of a version of a table."""
    actions = pa.table(delta.get_add_actions(flatten=False)).to_pylist()
    return [
        TableFile(
            path / unquote(each["path"]),
            each["num_records"] or 0,
            each.get("partition") or {},
            {"min": each.get("min") or {}, "max": each.get("max") or {}},
            each["size_bytes"],
        )
        for each in actions
    ]


def dataset_of(delta: DeltaTable, path: Path) -> Any:
    """The rows of a version of a table. Columns that a file lacks are null.

    deltalake's own dataset takes a column without bounds in Delta's log for one that has no values,
    and a filter on it then finds nothing. Here the footers of the files say what may be left out.
    Whoever filters by texts does so with `column_of` of repair/conditions.py.
    """
    schema = pa.schema(delta.schema())
    levels = [schema.field(name) for name in delta.metadata().partition_columns]
    return ds.dataset(
        [str(each.path) for each in files_of(delta, path)],
        schema=schema,
        format="parquet",
        partitioning=ds.partitioning(pa.schema(levels), flavor="hive"),
        partition_base_dir=str(path),
    )
