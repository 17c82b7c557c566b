"""Columns that nobody declared: with `unknown: evolve`, new fields become columns of silver.

The type of a column is decided by the first micro-batch that has it, and noted in
<storage>/state/contracts/<name>.json before the batch is written, so that a batch that is repeated
gives the same rows. A value that does not fit its column, or a field that cannot have one, is kept
in `_rest`, as JSON by name: nothing is lost.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.pipeline.contracts.fields import literal
from headwater.pipeline.contracts.model import OWN_COLUMNS, Contract, Unknown
from headwater.pipeline.contracts.reading import column_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: So many columns are added to a table at most.
MOST_COLUMNS = 200
_MOST_FOUND = 10_000
_LONG = "'^-?[0-9]{1,18}$'"
_NUMBER = "'^-?[0-9]+(\\\\.[0-9]+)?([eE][-+]?[0-9]+)?$'"
_KIND = (
    f"CASE WHEN text RLIKE {_LONG} THEN 'long' WHEN text RLIKE {_NUMBER} THEN 'double' "
    "WHEN text IN ('true', 'false') THEN 'boolean' ELSE 'string' END"
)


@dataclass(frozen=True, slots=True)
class Column:
    """A field that became a column."""

    field: str
    column: str
    kind: str

    def fits(self, text: str) -> str:
        """Whether the column can hold a value, given as JSON."""
        return {
            "long": f"{text} RLIKE {_LONG}",
            "double": f"{text} RLIKE {_NUMBER}",
            "boolean": f"{text} IN ('true', 'false')",
            "string": "true",
        }[self.kind]

    def expression(self) -> str:
        text = f"try_element_at(_extra, {literal(self.field)})"
        typed = {
            "long": f"try_cast({text} AS BIGINT)",
            "double": f"try_cast({text} AS DOUBLE)",
            "boolean": f"{text} = 'true'",
            "string": f"IF(startswith({text}, '\"'), "
            f"try_variant_get(try_parse_json({text}), '$', 'string'), {text})",
        }[self.kind]
        return f"CASE WHEN {self.fits(text)} THEN {typed} END AS `{self.column}`"


class Evolution:
    """The columns that were added to the silver table of a contract."""

    def __init__(self, contract: Contract, directory: Path) -> None:
        self.contract = contract
        self._file = directory / f"{contract.name}.json"
        self.columns = self._load()

    @property
    def active(self) -> bool:
        return self.contract.unknown is Unknown.EVOLVE

    def expressions(self) -> list[str]:
        """The columns of a frame that has `_extra`; the last one is `_rest`."""
        if not self.active:
            return []
        return [each.expression() for each in self.columns] + [f"{self._rest()} AS _rest"]

    def _rest(self) -> str:
        kept = [f"(k = {literal(e.field)} AND {e.fits('x')})" for e in self.columns]
        left = f"map_filter(_extra, (k, x) -> NOT ({' OR '.join(kept)}))" if kept else "_extra"
        return f"CASE WHEN cardinality({left}) > 0 THEN {left} END"

    def learn(self, found: Iterable[tuple[str, str]]) -> None:
        """Add columns for fields that were found, with the kinds of their values."""
        kinds: dict[str, set[str]] = {}
        for field, kind in found:
            kinds.setdefault(field, set()).add(kind)
        known = {each.field for each in self.columns}
        taken = {each.column.lower() for each in self.columns}
        taken |= {each.column.lower() for each in self.contract.fields}
        columns = list(self.columns)
        for field in sorted(kinds.keys() - known):
            column = column_of(field)[:128] if field else ""
            if not column or column.lower() in taken | set(OWN_COLUMNS):
                continue
            if len(columns) < MOST_COLUMNS:
                columns.append(Column(field, column, _common(kinds[field])))
                taken.add(column.lower())
        if len(columns) > len(self.columns):
            self.columns = tuple(columns)
            self._save()

    def _load(self) -> tuple[Column, ...]:
        if not self._file.exists():
            return ()
        content = json.loads(self._file.read_text())
        return tuple(Column(**each) for each in content["columns"])

    def _save(self) -> None:
        content = {
            "columns": [
                {"field": each.field, "column": each.column, "kind": each.kind}
                for each in self.columns
            ]
        }
        self._file.parent.mkdir(parents=True, exist_ok=True)
        written = self._file.with_suffix(".new")
        with written.open("w") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        written.replace(self._file)


def _common(kinds: set[str]) -> str:
    """The type that holds all of these."""
    if len(kinds) == 1:
        return next(iter(kinds))
    return "double" if kinds == {"long", "double"} else "string"


class Discovery:
    """Finds new fields in a micro-batch: one look at it for all contracts."""

    def __init__(self, evolutions: Iterable[Evolution]) -> None:
        self.of = {each.contract.name: each for each in evolutions}
        self._seen: Any = None

    def look(self, batch: "DataFrame") -> None:
        """Learn the fields of a batch, unless it was the last one that was looked at."""
        if batch is self._seen or batch.isStreaming:
            return
        if any(each.active for each in self.of.values()):
            self._learn(batch)
        self._seen = batch

    def _learn(self, batch: "DataFrame") -> None:
        extra = batch.where("_extra IS NOT NULL").selectExpr(
            "contract", "explode(_extra) AS (field, text)"
        )
        rows = extra.selectExpr("contract", "field", f"{_KIND} AS kind").distinct()
        found: dict[str, list[tuple[str, str]]] = {}
        for row in rows.orderBy("contract", "field", "kind").limit(_MOST_FOUND).collect():
            found.setdefault(row["contract"], []).append((row["field"], row["kind"]))
        for name, fields in found.items():
            self.of[name].learn(fields)
