"""The log as rows of the contracts' tables: judged by the tasks that read it.

    format("headwater_contracts")   rows of one table (option `table`), for any runner of Spark
    Files                           files for all tables, for Headwater's own (see direct.py)

Tasks need nothing but their options and, for columns that nobody declared, the directory `state`.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from headwater.pipeline.contracts import reading, repeats
from headwater.pipeline.contracts.evolution import Evolution
from headwater.pipeline.contracts.judge import (
    LATE_ROWS,
    QUARANTINE_ROWS,
    Judge,
    silver_schema,
)
from headwater.pipeline.contracts.model import Contract
from headwater.pipeline.taskfiles.write import DIGEST, PIECES, FileReader, Rows, gathered
from headwater.spark import arrow_schemas
from headwater.spark.options import Source, parse
from headwater.spark.source import BatchReader, Reader, StreamReader, schema

NAME = "headwater_contracts"
QUARANTINE = "quarantine"
LATE = "late"
PARTITION_COLUMNS = ("date",)


class Tables:
    """The tables of some contracts: what they have, and how records become their rows."""

    def __init__(self, contracts: Sequence[Contract], state: Path, learning: bool = True) -> None:
        self.contracts = tuple(contracts)
        self.evolutions = {each.name: Evolution(each, state) for each in contracts}
        self._judge = Judge(self.contracts, self.evolutions, learning)

    @classmethod
    def of(cls, options: dict[str, str], learning: bool = True) -> "Tables":
        """Takes its options out of those of the source."""
        files = json.loads(options.pop("contracts"))
        contracts = [reading.parse(text, Path(file)) for file, text in files]
        return cls(contracts, Path(options.pop("state")), learning)

    @staticmethod
    def options(contracts: Sequence[Contract], state: Path) -> dict[str, str]:
        files = [(each.file.name, each.text) for each in contracts]
        return {"contracts": json.dumps(files), "state": str(state)}

    @property
    def names(self) -> list[str]:
        return [*(each.table for each in self.contracts), QUARANTINE, LATE]

    def schema(self, table: str) -> pa.Schema:
        if table == QUARANTINE:
            return QUARANTINE_ROWS
        if table == LATE:
            return LATE_ROWS
        contract = self.contract_of(table)
        return silver_schema(contract, self.evolutions[contract.name])

    def spark_schema(self, table: str) -> StructType:
        return arrow_schemas.spark_schema(self.schema(table))

    def contract_of(self, table: str) -> Contract:
        return next(each for each in self.contracts if each.table == table)

    def learn(self, news: Sequence[tuple[str, str]]) -> None:
        """Make columns of new fields, told by table."""
        fields: dict[str, set[tuple[str, str]]] = {}
        for table, told in news:
            name = self.contract_of(table).name
            fields.setdefault(name, set()).update((field, kind) for field, kind in json.loads(told))
        for name, found in fields.items():
            self.evolutions[name].learn(found)

    def rows(self, records: Any) -> Iterator[Rows]:
        """Rows for all tables. Those with a key have its digest in a last column.

        Or news: fields that get a column first, before anything is made of these records."""
        judged = self._judge(records)
        if judged.news:
            for name, found in judged.news.items():
                yield Rows(f"silver_{name}", None, (), json.dumps(sorted(found)))
            return
        for each in self.contracts:
            rows = judged.silver.get(each.name)
            if rows is not None:
                yield Rows(each.table, self._with_digest(each, rows), PARTITION_COLUMNS)
        for name, parts in ((QUARANTINE, judged.quarantine), (LATE, judged.late)):
            if parts:
                rows = pa.concat_tables(parts).cast(self.schema(name))
                yield Rows(name, rows.sort_by("offset"), PARTITION_COLUMNS)

    def _with_digest(self, contract: Contract, rows: Any) -> Any:
        wanted = self.schema(contract.table)
        rows = rows.cast(wanted)
        if not contract.key:
            return rows
        return rows.append_column(DIGEST, repeats.digests(contract, rows))


class Files(DataSource):
    """Options besides those of the log: contracts, state, and `tables`, a directory."""

    @classmethod
    def name(cls) -> str:
        return "headwater_contract_files"

    def schema(self) -> str:
        return PIECES

    def streamReader(self, schema: StructType) -> FileReader:
        options = dict(self.options)
        tables = Path(options.pop("tables"))
        given = {name: options.pop(name) for name in ("contracts", "state")}
        # When a task begins: columns that were found meanwhile are known to it.
        return FileReader(
            parse(Source, options), tables, lambda records: Tables.of(dict(given)).rows(records)
        )


class TableRows(DataSource):
    """Options besides those of the log: contracts, state, and `table`, whose rows are wanted."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        options = dict(self.options)
        table = options["table"]
        found = Tables.of(options).spark_schema(table)
        return StructType([*found, StructField(DIGEST, BinaryType())])

    def reader(self, schema: StructType) -> "_BatchRows":
        return _BatchRows(dict(self.options))

    def streamReader(self, schema: StructType) -> "_StreamRows":
        return _StreamRows(dict(self.options))


class _RowsReader(Reader):
    def __init__(self, options: dict[str, str]) -> None:
        self._table = options.pop("table")
        # The columns of a stream are fixed: a field without one is kept in `_rest`.
        self._tables = Tables.of(options, learning=False)
        parsed = parse(Source, options)
        super().__init__(parsed, schema(parsed))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for records in gathered(super().read(partition)):
            for made in self._tables.rows(records):
                if made.table == self._table:
                    yield from _told_apart(made.rows).to_batches()


class _BatchRows(_RowsReader, BatchReader):
    pass


class _StreamRows(_RowsReader, StreamReader):
    pass


def _told_apart(rows: Any) -> Any:
    """With a digest that no two rows share unless one is a repeat."""
    if DIGEST in rows.column_names:
        found = rows.column(DIGEST).to_pylist()
        rows = rows.drop_columns([DIGEST])
    else:
        found = [repeats.NO_KEY] * len(rows)
    offsets = rows.column("_offset" if "_offset" in rows.column_names else "offset").to_pylist()
    digests = [
        b"@%d" % offset if digest == repeats.NO_KEY else digest
        for digest, offset in zip(found, offsets, strict=True)
    ]
    return rows.append_column(DIGEST, pa.array(digests, pa.binary()))
