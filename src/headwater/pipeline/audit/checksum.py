"""A number for each record, computed the same way wherever the record is: in the log or in a table.

Numbers of many records are added up, in any order. If two sums over the same offsets are equal, so
are the records, but for one chance in 2⁶⁴. Everything is done for a whole Arrow batch at once.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pandas.util import hash_array

#: The columns of a record; a batch has to have them.
COLUMNS = ("offset", "topic", "value", "timestamp", "protocol", "publisher", "headers")

_STAMP = pa.timestamp("us", tz="UTC")
# The constants of splitmix64: each bit that goes in changes about half of those that come out.
_STEP, _FIRST, _SECOND = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)


def mixed(numbers: Any) -> Any:
    """Numbers spread over 64 bits."""
    bits = numbers.astype(np.uint64) + _STEP
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))


def offsets_of(batch: Any) -> Any:
    return batch.column("offset").to_numpy(zero_copy_only=False)


def of_records(batch: Any) -> Any:
    """The numbers of the records of a batch."""
    found = mixed(offsets_of(batch))
    for name in ("topic", "protocol", "publisher"):
        found = mixed(found ^ _of_names(batch.column(name)))
    stamps = batch.column("timestamp").cast(_STAMP).cast(pa.int64())
    found = mixed(found ^ mixed(stamps.to_numpy(zero_copy_only=False)))
    found = mixed(found ^ _of_bytes(batch.column("value")))
    return mixed(found ^ _of_headers(batch.column("headers")))


def _of_bytes(column: Any) -> Any:
    values = column.to_numpy(zero_copy_only=False)
    return hash_array(values, categorize=False)


def _of_names(column: Any) -> Any:
    """Texts of which there are few different ones."""
    encoded = pc.dictionary_encode(column)
    names = encoded.dictionary.to_numpy(zero_copy_only=False)
    return hash_array(names, categorize=False)[encoded.indices.to_numpy()]


def _of_headers(column: Any) -> Any:
    """The order of headers means nothing, and null is the same as none."""
    found = np.zeros(len(column), np.uint64)
    counts = np.diff(column.offsets.to_numpy())
    some = counts > 0
    if column.null_count:
        some &= column.is_valid().to_numpy(zero_copy_only=False)
    if not some.any():
        return found
    pairs = column.filter(pa.array(some))
    numbers = mixed(_of_names(pairs.keys) ^ mixed(_of_names(pairs.items)))
    found[some] = np.add.reduceat(numbers, pairs.offsets.to_numpy()[:-1])
    return found
