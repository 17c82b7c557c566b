"""The verdict over many records: each becomes a row of silver, of quarantine, or of late.

`fits.py` finds the records that certainly fit, a chunk at a time. A chunk that it cannot read is
tried again without the record at fault, or in halves if that record is not known. `checks.py` looks
at the remaining records one by one. So the work grows with the number of odd records, and every
reason is made in one place.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.contracts.checks import Record, Verdict, verdict_of
from headwater.pipeline.contracts.columns import STAMP, arrow_type
from headwater.pipeline.contracts.evolution import Evolution, NewFields
from headwater.pipeline.contracts.fits import Fits, Unreadable
from headwater.pipeline.contracts.model import Contract, contract_of
from headwater.pipeline.taskfiles.write import dates

RECORD = pa.schema(
    [
        ("offset", pa.int64()),
        ("topic", pa.string()),
        ("value", pa.binary()),
        ("timestamp", STAMP),
        ("protocol", pa.string()),
        ("publisher", pa.string()),
        ("headers", pa.map_(pa.string(), pa.string())),
    ]
)
_DATE = pa.field("date", pa.date32())
QUARANTINE_ROWS = pa.schema(
    [*RECORD, ("contract", pa.string()), ("rule", pa.string()), ("reason", pa.string()), _DATE]
)
LATE_ROWS = pa.schema(
    [
        *RECORD,
        ("contract", pa.string()),
        ("event_time", STAMP),
        ("late_by_seconds", pa.float64()),
        _DATE,
    ]
)
_OWN = pa.schema(
    [
        ("_offset", pa.int64()),
        ("_topic", pa.string()),
        ("_timestamp", STAMP),
        ("_protocol", pa.string()),
        ("_publisher", pa.string()),
        ("_event_time", STAMP),
        _DATE,
    ]
)
_CHUNK, _CHUNK_BYTES, _FEW = 8192, 8 << 20, 32
# When so many times not even a few records could be read, the others are left to checks.py as well.
_PATIENCE = 8
# So many records are sampled for fields that have no column yet; and first so many.
_SAMPLE, _GLANCE = 1024, 16
# So many topics are remembered with their contract.
_MOST_TOPICS = 100_000


@dataclass(slots=True)
class Judgement:
    """Rows for the tables of all contracts. A contract or a table without rows is absent.

    The records of a contract that has new fields were not all judged."""

    silver: dict[str, Any] = field(default_factory=dict)
    quarantine: list[Any] = field(default_factory=list)
    late: list[Any] = field(default_factory=list)
    new_fields: dict[str, NewFields] = field(default_factory=dict)


class Judge:
    """Judges records by the contracts of their topics.

    `learning`: report fields without a column, which get one before their records are judged."""

    def __init__(
        self,
        contracts: Sequence[Contract],
        evolutions: Mapping[str, Evolution],
        learning: bool = True,
    ) -> None:
        self._contracts = tuple(contracts)
        self._judges = [_ContractJudge(each, evolutions[each.name], learning) for each in contracts]
        self._numbers: dict[str, int] = {}

    def __call__(self, records: Any) -> Judgement:
        """Records have the columns of RECORD, in a table."""
        judgement = Judgement()
        numbers = self._numbered(records.column("topic"))
        for number in np.unique(numbers):
            mine = numbers == number
            rows = records if mine.all() else records.filter(pa.array(mine))
            if number < 0:
                judgement.quarantine.append(_without_contract(rows))
            else:
                self._judges[number].judge(rows, judgement)
        return judgement

    def _numbered(self, topics: Any) -> Any:
        """For each topic, the number of its contract; -1 if there is none."""
        encoded = pc.dictionary_encode(topics.combine_chunks())
        found = [self._number(each) for each in encoded.dictionary.to_pylist()]
        return np.array(found, np.int64)[encoded.indices.to_numpy()]

    def _number(self, topic: str) -> int:
        number = self._numbers.get(topic)
        if number is None:
            contract = contract_of(self._contracts, topic)
            number = -1 if contract is None else self._contracts.index(contract)
            if len(self._numbers) >= _MOST_TOPICS:
                self._numbers.clear()
            self._numbers[topic] = number
        return number


def silver_schema(contract: Contract, evolution: Evolution) -> pa.Schema:
    return pa.schema([*_fields(contract, evolution), *_OWN])


def _fields(contract: Contract, evolution: Evolution) -> list[pa.Field]:
    declared = [pa.field(each.column, arrow_type(each.kind, each)) for each in contract.fields]
    return declared + evolution.fields()


def _without_contract(rows: Any) -> Any:
    reasons = [f"no contract is for the topic {each}" for each in rows.column("topic").to_pylist()]
    verdicts = [Verdict("quarantine", None, "contract", reason) for reason in reasons]
    return _quarantine(rows, verdicts)


def _quarantine(rows: Any, verdicts: Sequence[Verdict]) -> Any:
    told = [[getattr(v, name) for v in verdicts] for name in ("contract", "rule", "reason")]
    columns = [*rows.select(RECORD.names).columns, *(pa.array(each, pa.string()) for each in told)]
    return pa.table([*columns, dates(rows.column("timestamp"))], QUARANTINE_ROWS.names)


class _ContractJudge:
    """Judges the records of one contract."""

    def __init__(self, contract: Contract, evolution: Evolution, learning: bool) -> None:
        self._contract, self._evolution, self._learning = contract, evolution, learning
        self._fits = Fits(contract, evolution.columns)
        self._fields = pa.schema(_fields(contract, evolution))

    @cached_property
    def _event_column(self) -> str | None:
        name = self._contract.event_time
        return None if name is None else self._contract.field(name).column

    def judge(self, rows: Any, judgement: Judgement) -> None:
        rows = rows.combine_chunks()
        if new_fields := self._sampled_new_fields(rows):
            judgement.new_fields[self._contract.name] = new_fields
            return
        found = self._certain(rows.column("value"))
        certain = _joined([self._with_event_time(rows, typed, at) for at, typed in found])
        odd = np.ones(len(rows), bool)
        parts = []
        if certain is not None:
            ahead = _micros(certain.event_time) - _micros(rows.column("timestamp").take(certain.at))
            certain = certain.only(ahead <= round(self._contract.future * 1e6))
            odd[certain.at] = False
            parts.append(certain)
        if odd.any():
            parts += self._one_by_one(rows, np.flatnonzero(odd), judgement)
        self._place(rows, parts, judgement)

    # Records that certainly fit

    def _certain(self, values: Any) -> Iterator[tuple[Any, Any]]:
        """The places of records that fit, with their typed rows."""
        if not self._fits.possible:
            return
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        places = np.flatnonzero(self._fits.candidates(values).to_numpy(zero_copy_only=False))
        waiting = _chunks(places, values)[::-1]
        failures = 0
        while waiting and failures < _PATIENCE:
            chunk = waiting.pop()
            try:
                rows, fits = self._fits.read(values.take(chunk))
            except Unreadable as error:
                failures += len(chunk) <= _FEW
                waiting += _without(chunk, error.row)
            else:
                failures = 0
                yield chunk[fits.to_numpy(zero_copy_only=False)], self._complete(rows.filter(fits))

    def _complete(self, rows: Any) -> Any:
        """With `_rest`, which is empty."""
        missing = [each for each in self._fields if each.name not in rows.column_names]
        for each in missing:
            rows = rows.append_column(each, pa.nulls(len(rows), each.type))
        return rows.select(self._fields.names)

    def _with_event_time(self, rows: Any, typed: Any, at: Any) -> "_Fitting":
        arrival = rows.column("timestamp").take(at)
        event = arrival if self._event_column is None else typed.column(self._event_column)
        return _Fitting(at, typed, pc.coalesce(event, arrival))

    # Other records

    def _sampled_new_fields(self, rows: Any) -> NewFields:
        """A field that is new is mostly in all records: no need to look at each of them first."""
        new_fields: NewFields = set()
        for size in (_GLANCE, _SAMPLE):
            if self._learning and self._evolution.active and len(rows) > _SAMPLE:
                places = np.linspace(0, len(rows) - 1, size).astype(np.int64)
                self._few(rows, places, Judgement(), new_fields)
            if not new_fields:
                break
        return new_fields

    def _one_by_one(self, rows: Any, places: Any, judgement: Judgement) -> "list[_Fitting]":
        new_fields: NewFields = set()
        parts = []
        for at in range(0, len(places), _SAMPLE):
            parts.append(self._few(rows, places[at : at + _SAMPLE], judgement, new_fields))
            if new_fields and self._learning:
                judgement.new_fields[self._contract.name] = new_fields
                break
        return parts

    def _few(
        self, rows: Any, places: Any, judgement: Judgement, new_fields: NewFields
    ) -> "_Fitting":
        verdicts = [verdict_of(self._contract, each) for each in _records(rows.take(places))]
        broken = np.array([each.place == "quarantine" for each in verdicts])
        if broken.any():
            bad = [each for each in verdicts if each.place == "quarantine"]
            judgement.quarantine.append(_quarantine(rows.take(places[broken]), bad))
        good = [each for each in verdicts if each.place != "quarantine"]
        typed = [{**each.row, **self._evolution.placed(each.extra, new_fields)} for each in good]
        return _Fitting(
            places[~broken],
            pa.Table.from_pylist(typed, self._fields),
            pa.chunked_array([pa.array([each.event_time for each in good], STAMP)]),
        )

    # Into the tables

    def _place(self, rows: Any, parts: "list[_Fitting]", judgement: Judgement) -> None:
        part = _joined(parts)
        if part is None:
            return
        rows = rows.take(part.at)
        behind = _micros(rows.column("timestamp")) - _micros(part.event_time)
        late = behind > round(self._contract.lateness * 1e6)
        if late.any():
            mask = pa.array(late)
            judgement.late.append(self._late(rows.filter(mask), part.event_time.filter(mask)))
            rows, part = rows.filter(pa.array(~late)), part.only(~late)
        if len(rows):
            judgement.silver[self._contract.name] = self._silver(rows, part)

    def _silver(self, rows: Any, part: "_Fitting") -> Any:
        names = ("offset", "topic", "timestamp", "protocol", "publisher")
        own = [*(rows.column(name) for name in names), part.event_time]
        columns = [*part.typed.columns, *own, dates(rows.column("timestamp"))]
        return pa.table(columns, pa.schema([*self._fields, *_OWN]).names)

    def _late(self, rows: Any, event_time: Any) -> Any:
        behind = (_micros(rows.column("timestamp")) - _micros(event_time)) / 1e6
        contract = pa.repeat(self._contract.name, len(rows))
        columns = [*rows.select(RECORD.names).columns, contract, event_time, pa.array(behind)]
        return pa.table([*columns, dates(rows.column("timestamp"))], LATE_ROWS.names)


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Records that fit: their places among the others, their typed rows, their event times."""

    at: Any
    typed: Any
    event_time: Any

    def only(self, wanted: Any) -> "_Fitting":
        mask = pa.array(wanted)
        return _Fitting(self.at[wanted], self.typed.filter(mask), self.event_time.filter(mask))


def _joined(parts: list[_Fitting]) -> _Fitting | None:
    """All of them, in the order of the log."""
    parts = [each for each in parts if len(each.at)]
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    at = np.concatenate([each.at for each in parts])
    typed = pa.concat_tables([each.typed for each in parts])
    times = pa.chunked_array([chunk for each in parts for chunk in each.event_time.chunks])
    if (np.diff(at) > 0).all():
        return _Fitting(at, typed, times)
    order = np.argsort(at)
    return _Fitting(at[order], typed.take(order), times.take(order))


def _chunks(places: Any, values: Any) -> list[Any]:
    """Places of records that are read at once: not too many, nor too large together."""
    sizes = pc.binary_length(values).to_numpy()[places]
    by_count = np.arange(len(places)) // _CHUNK
    by_size = np.cumsum(sizes, dtype=np.int64) // _CHUNK_BYTES
    cuts = np.flatnonzero(np.diff(by_count) | np.diff(by_size)) + 1
    return [each for each in np.split(places, cuts) if len(each)]


def _without(chunk: Any, row: int | None) -> list[Any]:
    """The parts of a chunk to try next, the last one first, after a row could not be read."""
    if row is not None and row < len(chunk):
        return [each for each in (chunk[row + 1 :], chunk[:row]) if len(each)]
    middle = len(chunk) // 2
    return [chunk[middle:], chunk[:middle]] if len(chunk) > _FEW else []


def _micros(stamps: Any) -> Any:
    return stamps.cast(pa.int64()).to_numpy()


def _records(rows: Any) -> Iterator[Record]:
    columns = (rows.column(name).to_pylist() for name in ("topic", "value", "timestamp", "offset"))
    return map(Record, *columns)
