"""Condenses many records to few rows with Arrow, before a stateful operator of Spark gets them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# So many rows are put together before they are condensed again.
GATHERED_ROWS = 65_536
# Larger texts are not searched for the time they were made at.
SEARCHED_BYTES = 65_536
# A number keeps so many binary digits: 1 in 128, which is what percentiles may be wrong by.
DIGITS = 7

_BATCH_NUMBER = r"/\d+$"
_SENT = rb'"sent_at"\s*:\s*"?(?P<sent>[0-9][0-9T:Z+. \-]{0,39})'
_NUMBER = r"^[0-9]{1,16}(\.[0-9]{1,9})?$"
_MICROSECONDS = pa.timestamp("us", tz="UTC")

Condense = Callable[[Any], Any]


def condensed(batches: Iterable[Any], first: Condense, again: Condense) -> Iterator[Any]:
    """Condense each batch, and then the results of many batches together."""
    waiting: list[Any] = []
    rows = 0
    for batch in batches:
        if not len(batch):
            continue
        waiting.append(first(batch))
        rows += len(waiting[-1])
        if rows >= GATHERED_ROWS:
            yield from again(pa.concat_tables(waiting)).to_batches()
            waiting, rows = [], 0
    if waiting:
        yield from again(pa.concat_tables(waiting)).to_batches()


def rounded(numbers: Any) -> Any:
    """Numbers from 0 on with their first binary digits only, so that few different ones are left.

    Each stands for those around it."""
    values = numbers.to_numpy(zero_copy_only=False)
    _, exponents = np.frexp(values.astype(np.float64))
    cut = np.maximum(exponents - DIGITS, 0).astype(np.int64)
    middle = np.where(cut > 0, np.left_shift(np.int64(1), np.maximum(cut, 1) - 1), 0)
    return pa.array(np.left_shift(np.right_shift(values, cut), cut) + middle)


def publishers(protocols: Any, names: Any) -> Any:
    """The publishers. Over Flight a name ends with the number of the batch, which is cut off."""
    flight = pc.equal(protocols, "flight")
    if not pc.any(flight).as_py():
        return names
    encoded = pc.dictionary_encode(names)  # each name is looked at once
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    plain = pc.replace_substring_regex(encoded.dictionary, _BATCH_NUMBER, "")
    return pc.if_else(flight, plain.take(encoded.indices), names)


def delays(batch: Any) -> Any:
    """Milliseconds from when a record says that it was made until it arrived; null if it does not.

    A record says so in a header `sent`, or in a JSON field `sent_at`, as a number (seconds,
    milliseconds or microseconds since 1970) or as a time of ISO 8601 with its zone. Clocks differ:
    what seems to come from the future has no delay."""
    sent = _in_headers(batch)
    values = batch.column("value")
    marked = pc.and_(
        pc.match_substring(values, b'"sent_at"'),
        pc.less_equal(pc.binary_length(values), SEARCHED_BYTES),
    )
    if pc.any(marked).as_py():
        wanted = pc.if_else(marked, values, pa.scalar(None, values.type))
        found = pc.struct_field(pc.extract_regex(wanted, _SENT), 0).cast(pa.string())
        sent = pc.coalesce(sent, found)
    if sent.null_count == len(sent):
        return pa.nulls(len(sent), pa.int64())
    waited = pc.subtract(batch.column("timestamp").cast(pa.int64()), microseconds(sent))
    return pc.divide(pc.max_element_wise(waited, 0, skip_nulls=False), 1000)


def _in_headers(batch: Any) -> Any:
    if "headers" not in batch.schema.names or not len(batch.column("headers").items):
        return pa.nulls(len(batch), pa.string())
    return pc.map_lookup(batch.column("headers"), "sent", "first")


def microseconds(texts: Any) -> Any:
    """Times since 1970; null where a text is none."""
    numeric = pc.match_substring_regex(texts, _NUMBER)
    none = pa.scalar(None, pa.string())
    numbers = pc.if_else(numeric, texts, none).cast(pa.float64())
    scale = pc.if_else(pc.less(numbers, 1e11), 1e6, pc.if_else(pc.less(numbers, 1e14), 1e3, 1.0))
    counted = pc.round(pc.multiply(numbers, scale)).cast(pa.int64())
    return pc.coalesce(counted, _dates(pc.if_else(numeric, none, texts)))


def _dates(texts: Any) -> Any:
    try:
        return (
            texts.cast(pa.timestamp("ns", tz="UTC")).cast(_MICROSECONDS, safe=False).cast("int64")
        )
    except pa.ArrowInvalid:
        # One that is no time makes all of them fail: look at each.
        encoded = pc.dictionary_encode(texts)
        found = [_date(text) for text in encoded.dictionary.to_pylist()]
        return pa.array(found, pa.int64()).take(encoded.indices)


def _date(text: str) -> int | None:
    try:
        moment = pa.scalar(text).cast(pa.timestamp("ns", tz="UTC"))
    except pa.ArrowInvalid:
        return None
    return int(moment.value // 1000)
