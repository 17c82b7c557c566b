"""Rows of silver that repeat the key of an earlier row and should have been left out.

A row counts only if the earlier one came within the contract's `dedupe_window`. Keys are compared
by a number of 64 bits. Rows are read in windows of offsets; the keys of the last rows of a window
are kept for the next one.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pandas.util import hash_array

from headwater.pipeline.audit import checksum
from headwater.pipeline.audit.files import file_batches, overlapping
from headwater.pipeline.contracts import Contract
from headwater.pipeline.tables.stored import StoredTable

_STAMP = pa.timestamp("us", tz="UTC")
#: Keys, times in microseconds, offsets.
KeyedRows = tuple[Any, Any, Any]


class SilverKeys:
    """The keys of one contract. Windows have to be asked for in their order."""

    def __init__(self, silver: StoredTable, contract: Contract) -> None:
        self._silver = silver
        self._columns = [contract.field(name).column for name in contract.key]
        self._window = contract.dedupe_window * 1e6
        self._last = _rows([])

    def twice(self, low: int, high: int) -> Any:
        """The offsets of rows that should not be there."""
        if not self._columns or not self._silver.exists:
            return np.empty(0, np.int64)
        keys, times, offsets = _rows([self._last, *self._read(low, high)])
        order = np.lexsort((offsets, times, keys))
        again = (np.diff(keys[order]) == 0) & (np.diff(times[order]) <= self._window)
        found = offsets[order[1:][again]]
        late = times >= times.max(initial=0) - self._window
        self._last = keys[late], times[late], offsets[late]
        return np.sort(found[found >= low])

    def _read(self, low: int, high: int) -> list[KeyedRows]:
        files = [each for each in self._silver.files() if each.path.exists()]
        return [
            _numbered(batch, self._columns, low, high)
            for file in overlapping(files, low, high, "_offset")
            for batch in file_batches(file, (*self._columns, "_offset", "_timestamp"))
        ]


def _numbered(batch: Any, columns: list[str], low: int, high: int) -> KeyedRows:
    """The rows of a batch that are in a range and have a key."""
    offset = batch.column("_offset")
    wanted = pc.and_(pc.greater_equal(offset, low), pc.less(offset, high))
    for name in columns:
        wanted = pc.and_(wanted, batch.column(name).is_valid())
    kept = batch.filter(wanted)
    keys = np.zeros(len(kept), np.uint64)
    for name in columns:
        texts = kept.column(name).cast(pa.string()).to_numpy(zero_copy_only=False)
        keys = checksum.mixed(keys ^ hash_array(texts, categorize=False))
    times = kept.column("_timestamp").cast(_STAMP).cast(pa.int64())
    return keys, times.to_numpy(), kept.column("_offset").to_numpy()


def _rows(parts: list[KeyedRows]) -> KeyedRows:
    empty = (np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))
    keys, times, offsets = zip(empty, *parts, strict=True)
    return np.concatenate(keys), np.concatenate(times), np.concatenate(offsets)
