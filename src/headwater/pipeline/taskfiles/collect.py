"""Files that tasks have written (see direct.py), as the driver takes them."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.pipeline.project.paths import STAGING
from headwater.pipeline.tables.parquet import Staged, surveyed
from headwater.pipeline.taskfiles.write import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Piece:
    """A file that a task has written."""

    file: Staged
    keys: bytes
    times: bytes

    def without(self, repeated: Any) -> "Piece | None":
        """The file without some of its rows; None if there are none left."""
        keep = pc.invert(pa.array(repeated))
        rows = pq.read_table(self.file.path, partitioning=None).filter(keep)
        if not len(rows):
            return None
        write(rows, self.file.path)
        return Piece(surveyed(self.file.path, self.file.folder), b"", b"")


@dataclass(frozen=True, slots=True)
class Found:
    """The files of a micro-batch by table, in the order of the log; and what was told."""

    pieces: dict[str, list[Piece]]
    news: list[tuple[str, str]]

    def discard(self) -> None:
        for pieces in self.pieces.values():
            discard([each.file for each in pieces])


def found(batch: "DataFrame") -> Found:
    """Run a micro-batch, and see what its tasks have written."""
    pieces: dict[str, list[Piece]] = {}
    news = []
    for row in batch.collect():
        if row["news"] is not None:
            news.append((row["table"], row["news"]))
        if row["path"] is not None:
            file = staged(Path(row["path"]))
            piece = Piece(file, bytes(row["keys"] or b""), bytes(row["times"] or b""))
            pieces.setdefault(row["table"], []).append(piece)
    for each in pieces.values():
        each.sort(key=lambda piece: piece.file.first or 0)
    return Found(pieces, news)


def discard(files: Iterable[Staged]) -> None:
    """Remove what was not committed, and the directories of what was."""
    for attempt in {_attempt(each.path) for each in files}:
        shutil.rmtree(attempt, ignore_errors=True)


def staged(path: Path) -> Staged:
    """A file that was written to a staging directory."""
    return surveyed(path, path.parent.relative_to(_attempt(path)))


def _attempt(path: Path) -> Path:
    """The directory of the attempt that has written a file."""
    return next(each for each in path.parents if each.parent.name == STAGING)
