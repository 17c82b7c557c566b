"""Records that certainly fit, found with Arrow, many at once.

Most records fit their contract. Arrow's parser reads them several times as quickly as Python does,
into typed columns; but it is all or nothing, it cannot say what is wrong, and it takes some things
that a contract does not. So nothing is refused here: `checks.py` decides about each record that
does not certainly fit. The two have to agree about the records that fit.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headwater.pipeline.contracts.columns import checked, finite, parsed_type
from headwater.pipeline.contracts.evolution import EvolvedColumn
from headwater.pipeline.contracts.model import Contract, Field, Unknown

#: A number that is too long for checks.py has so many digits in a row; a short record has no such.
_LONG, _MANY_DIGITS = 900, rb"[0-9]{100}"
# Arrow takes decimals with an exponent, with a plus, with nothing before or behind the point, and
# with any number of zeros.
_ODD_DECIMAL = rb'[:\[,]\s*"?(\+|-?\.|-?[0-9]+(\.[0-9]*)?[eE]|-?[0-9]+\.")|[0-9.]{38}'
_ROW = re.compile(r" in row ([0-9]+)$")
_SCALARS = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_int64,
    pa.types.is_string,
    pa.types.is_timestamp,
)


class Unreadable(Exception):
    """Some record cannot be read; `row` is its number, if Arrow has told it."""

    def __init__(self, row: int | None) -> None:
        super().__init__()
        self.row = row


class Fits:
    """Finds the records of one contract that certainly fit."""

    def __init__(self, contract: Contract, columns: Sequence[EvolvedColumn]) -> None:
        self._contract = contract
        kinds = {each.kind.innermost.name for each in _every(contract.fields)}
        # A value that is left out of a struct would be read without all the checks.
        self.possible = "struct" not in kinds or contract.unknown is not Unknown.DISCARD_VALUE
        self._decimals = "decimal" in kinds
        self._evolved = tuple(columns)
        self._names = [*(each.name for each in contract.fields), *(c.field for c in columns)]
        self._columns = [*(each.column for each in contract.fields), *(c.column for c in columns)]
        self._options = self._parsing()

    def _parsing(self) -> Any:
        declared = self._contract.fields
        schema = [(each.name, parsed_type(each.kind, each)) for each in declared]
        schema += [(each.field, each.type) for each in self._evolved]
        # A value that is left out of the row has to be JSON all the same, so it is read.
        unknown = "infer" if self._contract.unknown is Unknown.DISCARD_VALUE else "error"
        return pj.ParseOptions(explicit_schema=pa.schema(schema), unexpected_field_behavior=unknown)

    def candidates(self, values: Any) -> Any:
        """Which values may be tried: those that look like one object each."""
        looks = pc.and_(pc.starts_with(values, b"{"), pc.ends_with(values, b"}"))
        sizes = pc.binary_length(values)
        looks = pc.and_(looks, pc.less_equal(sizes, self._contract.max_bytes))
        long = pc.greater(sizes, _LONG)
        if pc.any(long).as_py():
            some = pc.if_else(long, values, pa.scalar(None, values.type))
            odd = pc.match_substring_regex(some, _MANY_DIGITS)
            looks = pc.and_not(looks, pc.fill_null(odd, False))
        if self._decimals:
            odd = pc.match_substring_regex(values, _ODD_DECIMAL)
            looks = pc.and_not(looks, odd)
        return looks

    def read(self, values: Any) -> tuple[Any, Any]:
        """Rows of candidates, and which of them fit. Raises Unreadable if one cannot be read."""
        try:
            values.cast(pa.string())  # Arrow's parser does not look whether it is UTF-8
            found = self._parsed(values)
            columns, fits = [], None
            for each in self._contract.fields:
                column, certain = checked(each, found.column(each.name))
                columns.append(column)
                fits = certain if fits is None else pc.and_(fits, certain)
            columns += [found.column(each.field) for each in self._evolved]
            for each in found.columns[len(self._contract.fields) :]:
                if pa.types.is_floating(each.type):
                    fits = pc.and_(fits, finite(each))
        except pa.ArrowInvalid as error:
            place = _ROW.search(str(error))
            raise Unreadable(int(place[1]) if place else None) from None
        return pa.table(columns, self._columns), fits

    def _parsed(self, values: Any) -> Any:
        """A value with two objects is refused: it would make more rows than there are values."""
        every = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        joined = pc.binary_join(every, b"\n")[0].as_buffer()
        reading = pj.ReadOptions(use_threads=False, block_size=max(joined.size, 1) + 1)
        found = pj.read_json(
            pa.BufferReader(joined), read_options=reading, parse_options=self._options
        ).combine_chunks()
        extra = found.columns[len(self._names) :]
        known = (*_SCALARS, pa.types.is_floating)
        plain = all(any(is_(each.type) for is_ in known) for each in extra)
        if found.num_rows != len(values) or not plain:
            raise Unreadable(None)
        return found


def _every(fields: Sequence[Field]) -> Iterator[Field]:
    """All fields, with those in structs."""
    for each in fields:
        yield each
        yield from _every(each.fields)
