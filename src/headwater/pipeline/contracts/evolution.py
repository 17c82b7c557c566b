"""Evolved columns: with `unknown: evolve`, new fields become columns of silver.

The type of a column is decided by the first micro-batch that has it, and noted in
<storage>/state/contracts/<name>.json before the batch is written, so that a batch that is repeated
gives the same rows. A value that does not fit its column, or a field that cannot have one, is kept
in `_rest`, as JSON by name, so no value is lost.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.pipeline.contracts import document
from headwater.pipeline.contracts.model import OWN_COLUMNS, Contract, Unknown
from headwater.pipeline.contracts.reading import column_of
from headwater.pipeline.project import intents

#: So many columns are added to a table at most.
MOST_COLUMNS = 200
REST = "_rest"

KINDS = {"long": pa.int64(), "double": pa.float64(), "boolean": pa.bool_(), "string": pa.string()}
_FITTING: dict[str, tuple[type, ...]] = {
    "long": (int,),
    "double": (int, Decimal, float),
    "boolean": (bool,),
}

#: Fields that have no column yet, each with a kind of value that it has.
NewFields = set[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class EvolvedColumn:
    """A field that became a column."""

    field: str
    column: str
    kind: str

    @property
    def type(self) -> pa.DataType:
        return KINDS[self.kind]

    def fits(self, value: Any) -> bool:
        if self.kind == "string":
            return True
        return type(value) in _FITTING[self.kind]

    def typed(self, value: Any) -> Any:
        if self.kind == "string":
            return value if isinstance(value, str) else document.text(value)
        return float(value) if self.kind == "double" else value


def kind_of(value: Any) -> str:
    for kind, types in _FITTING.items():
        if type(value) in types:
            return kind
    return "string"


class Evolution:
    """The columns that were added to the silver table of a contract."""

    def __init__(self, contract: Contract, directory: Path) -> None:
        self.contract = contract
        self._file = directory / f"{contract.name}.json"
        self.columns = self._load() if self.active else ()
        self._refused: set[str] = set()  # fields that cannot have a column

    @property
    def active(self) -> bool:
        return self.contract.unknown is Unknown.EVOLVE

    def fields(self) -> list[pa.Field]:
        """The columns of the table besides the declared fields; the last one is `_rest`."""
        if not self.active:
            return []
        rest = pa.field(REST, pa.map_(pa.string(), pa.string()))
        return [*(pa.field(each.column, each.type) for each in self.columns), rest]

    def placed(self, extra: Mapping[str, Any], new_fields: NewFields) -> dict[str, Any]:
        """The values of undeclared fields by column. Adds fields without one to `new_fields`."""
        if not self.active:
            return {}
        known = {each.field: each for each in self.columns}
        row: dict[str, Any] = {}
        rest: list[tuple[str, str]] = []
        for name, value in extra.items():
            if value is None:
                continue
            column = known.get(name)
            if column is not None and column.fits(value):
                row[column.column] = column.typed(value)
            else:
                rest.append((name, document.text(value)))
            if column is None and self._is_new(name):
                new_fields.add((name, kind_of(value)))
        row[REST] = rest or None
        return row

    def learn(self, found: Iterable[tuple[str, str]]) -> None:
        """Add columns for fields that were found, with the kinds of their values."""
        kinds: dict[str, set[str]] = {}
        for field, kind in found:
            kinds.setdefault(field, set()).add(kind)
        for field in sorted(kinds.keys() - {each.field for each in self.columns}):
            if column := self._new_column(field, self._taken()):
                self.columns += (EvolvedColumn(field, column, _common(kinds[field])),)
        self._save()

    def _is_new(self, field: str) -> bool:
        if field in self._refused:
            return False
        if self._new_column(field, self._taken()) is None:
            self._refused.add(field)
        return field not in self._refused

    def _new_column(self, field: str, taken: set[str]) -> str | None:
        """The name of the column for a field; None if it cannot have one."""
        column = column_of(field)[:128] if field else ""
        possible = column and column.lower() not in taken and len(self.columns) < MOST_COLUMNS
        return column if possible else None

    def _taken(self) -> set[str]:
        used = [*(each.column for each in self.columns), *self.contract.columns, *OWN_COLUMNS]
        return {each.lower() for each in used}

    def _load(self) -> tuple[EvolvedColumn, ...]:
        if not self._file.exists():
            return ()
        content = json.loads(self._file.read_text())
        return tuple(EvolvedColumn(**each) for each in content["columns"])

    def _save(self) -> None:
        content = {
            "columns": [
                {"field": each.field, "column": each.column, "kind": each.kind}
                for each in self.columns
            ]
        }
        intents.write(self._file, content)


def _common(kinds: set[str]) -> str:
    """The type that holds all of these."""
    if len(kinds) == 1:
        return next(iter(kinds))
    return "double" if kinds == {"long", "double"} else "string"
