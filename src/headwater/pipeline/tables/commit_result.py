"""What a batch has added to a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from headwater.pipeline.project.paths import OFFSETS

if TYPE_CHECKING:
    from headwater.pipeline.tables.parquet import Staged
    from headwater.pipeline.tables.stored import File


@dataclass(frozen=True, slots=True)
class Written:
    """`repeated`: it was there before, and nothing was written now."""

    rows: int = 0
    bytes: int = 0
    files: int = 0
    repeated: bool = False
    #: The smallest and the largest of `offset` or `_offset`, where there is such a column.
    first: int | None = None
    last: int | None = None

    @classmethod
    def of_staged(cls, staged: "Sequence[Staged]") -> "Written":
        """Files that were just put into the table."""
        names = [(each, name) for each in staged for name in OFFSETS if name in each.low]
        return cls(
            rows=sum(each.rows for each in staged),
            bytes=sum(each.bytes for each in staged),
            files=len(staged),
            first=min((int(each.low[name]) for each, name in names), default=None),  # type: ignore[arg-type]
            last=max((int(each.high[name]) for each, name in names), default=None),  # type: ignore[arg-type]
        )

    @classmethod
    def of_files(cls, files: "Sequence[File]") -> "Written":
        """Files that were in the table before."""

        def known(bound: str) -> list[int]:
            values = (each.stats[bound].get(name) for each in files for name in OFFSETS)
            return [value for value in values if value is not None]

        return cls(
            rows=sum(each.rows for each in files),
            bytes=sum(each.bytes for each in files),
            files=len(files),
            repeated=True,
            first=min(known("min"), default=None),
            last=max(known("max"), default=None),
        )

    @classmethod
    def of_rows(cls, rows: Any, files: int) -> "Written":
        """Rows that were here, in a pyarrow.Table."""
        name = next((each for each in OFFSETS if each in rows.column_names), None)
        bounds = {"min": None, "max": None}
        if name is not None:
            bounds = pc.min_max(rows.column(name)).as_py()
        return cls(len(rows), rows.nbytes, files, False, bounds["min"], bounds["max"])
