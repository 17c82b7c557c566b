"""A table of Parquet files, as Spark's own sink writes it: `headwater.format: parquet`.

<table>/date=…/part-….parquet      rows, also of micro-batches that were never finished
<table>/_spark_metadata/0, 1, …    which files each micro-batch has added, one JSON per line
<table>/_spark_metadata/9.compact  the same for all up to this one
"""

import json
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

from headwater.pipeline.tables.parquet import footer_bounds
from headwater.pipeline.tables.stored import TableFile

_METADATA = "_spark_metadata"
_COMPACT = ".compact"


class SparkParquetTable:
    """Such a table, to be read by the audit and by `status`."""

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.exists = path, path.name, (path / _METADATA).is_dir()

    def files(self) -> list[TableFile]:
        """The files that belong to the table."""
        return [_file(Path(unquote(urlparse(each).path))) for each in self._added()]

    def _added(self) -> list[str]:
        notes = {
            int(each.name.removesuffix(_COMPACT)): each
            for each in sorted((self.path / _METADATA).iterdir())  # `9` is before `9.compact`
            if each.name.removesuffix(_COMPACT).isdigit()
        }
        start = max((n for n, each in notes.items() if each.suffix == _COMPACT), default=0)
        lines = [
            json.loads(line)
            for number in sorted(notes)
            if number >= start
            for line in notes[number].read_text().splitlines()[1:]
        ]
        return [each["path"] for each in lines if each["action"] == "add"]


def _file(path: Path) -> TableFile:
    if not path.exists():
        return TableFile(path, 0, {}, {"min": {}, "max": {}})
    low, high = footer_bounds(path, "offset")
    stats = {"min": {"offset": low}, "max": {"offset": high}}
    return TableFile(path, pq.read_metadata(path).num_rows, {}, stats, path.stat().st_size)
