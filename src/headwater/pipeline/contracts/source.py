"""Sources of Spark: the log as rows of the contracts' tables, judged by the tasks that read it.

    format("headwater_contracts")   rows of one table (option `table`), for any runner of Spark
    ContractFileSource              files for all tables, for Headwater's own (see taskfiles/)

A task needs its options and, for evolved columns, the directory `state`.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from headwater.pipeline.contracts import reading, repeats
from headwater.pipeline.contracts.evolution import Evolution, NewFields
from headwater.pipeline.contracts.judge import (
    LATE_ROWS,
    QUARANTINE_ROWS,
    Judge,
    silver_schema,
)
from headwater.pipeline.contracts.model import Contract
from headwater.pipeline.taskfiles.write import DIGEST, FILE_COLUMNS, FileReader, TaskRows, gather
from headwater.spark import arrow_schemas
from headwater.spark.options import SourceOptions, parse
from headwater.spark.source import BatchReader, SourceReader, StreamReader, schema

NAME = "headwater_contracts"
QUARANTINE = "quarantine"
LATE = "late"
PARTITION_COLUMNS = ("date",)


class ContractTables:
    """The tables of some contracts: what they have, and how records become their rows."""

    def __init__(self, contracts: Sequence[Contract], state: Path, learning: bool = True) -> None:
        self.contracts = tuple(contracts)
        self.evolutions = {each.name: Evolution(each, state) for each in contracts}
        self._judge = Judge(self.contracts, self.evolutions, learning)

    @classmethod
    def of(cls, options: dict[str, str], learning: bool = True) -> "ContractTables":
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

    def learn(self, new_fields: Sequence[tuple[str, str]]) -> None:
        """Add columns for new fields, which are given as (table, JSON)."""
        by_contract: dict[str, NewFields] = {}
        for table, fields in new_fields:
            name = self.contract_of(table).name
            by_contract.setdefault(name, set()).update(
                (field, kind) for field, kind in json.loads(fields)
            )
        for name, found in by_contract.items():
            self.evolutions[name].learn(found)

    def rows(self, records: Any) -> Iterator[TaskRows]:
        """Rows for all tables. Those with a key have its digest in a last column.

        If records have new fields, these instead of any rows."""
        judgement = self._judge(records)
        if judgement.new_fields:
            for name, found in judgement.new_fields.items():
                yield TaskRows(f"silver_{name}", None, (), json.dumps(sorted(found)))
            return
        for each in self.contracts:
            rows = judgement.silver.get(each.name)
            if rows is not None:
                yield TaskRows(each.table, self._with_digest(each, rows), PARTITION_COLUMNS)
        for name, parts in ((QUARANTINE, judgement.quarantine), (LATE, judgement.late)):
            if parts:
                rows = pa.concat_tables(parts).cast(self.schema(name))
                yield TaskRows(name, rows.sort_by("offset"), PARTITION_COLUMNS)

    def _with_digest(self, contract: Contract, rows: Any) -> Any:
        wanted = self.schema(contract.table)
        rows = rows.cast(wanted)
        if not contract.key:
            return rows
        return rows.append_column(DIGEST, repeats.digests(contract, rows))


class ContractFileSource(DataSource):
    """The log as files for all tables of some contracts.

    Options besides those of the log: contracts, state, and `tables`, a directory."""

    @classmethod
    def name(cls) -> str:
        return "headwater_contract_files"

    def schema(self) -> str:
        return FILE_COLUMNS

    def streamReader(self, schema: StructType) -> FileReader:
        options = dict(self.options)
        tables = Path(options.pop("tables"))
        given = {name: options.pop(name) for name in ("contracts", "state")}

        def make_rows(records: Any) -> Iterator[TaskRows]:
            # Made anew for each file, so that columns added meanwhile are known.
            return ContractTables.of(dict(given)).rows(records)

        return FileReader(parse(SourceOptions, options), tables, make_rows)


class ContractRowSource(DataSource):
    """The log as rows of one table.

    Options besides those of the log: contracts, state, and `table`, the name of the table."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        options = dict(self.options)
        table = options["table"]
        found = ContractTables.of(options).spark_schema(table)
        return StructType([*found, StructField(DIGEST, BinaryType())])

    def reader(self, schema: StructType) -> "_BatchRowsReader":
        return _BatchRowsReader(dict(self.options))

    def streamReader(self, schema: StructType) -> "_StreamRowsReader":
        return _StreamRowsReader(dict(self.options))


class _RowsReader(SourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._table = options.pop("table")
        # The columns of a stream are fixed: a field without one is kept in `_rest`.
        self._tables = ContractTables.of(options, learning=False)
        parsed = parse(SourceOptions, options)
        super().__init__(parsed, schema(parsed))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for records in gather(super().read(partition)):
            for each in self._tables.rows(records):
                if each.table == self._table:
                    yield from _with_distinct_digests(each.rows).to_batches()


class _BatchRowsReader(_RowsReader, BatchReader):
    pass


class _StreamRowsReader(_RowsReader, StreamReader):
    pass


def _with_distinct_digests(rows: Any) -> Any:
    """Rows with a digest that two of them share only if one repeats the other. Spark leaves out
    rows by it, so rows without a key get their offset instead."""
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
