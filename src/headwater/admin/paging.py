"""A page of a long list, sorted, without sorting or even building the whole list.

A page ends with a cursor: the sort value and the identity of its last item. The next page begins
behind it, whatever has come and gone meanwhile.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from itertools import islice
from typing import Any, Generic, TypeVar

from headwater.errors import Code, Refusal

T = TypeVar("T")

MOST_ITEMS = 200
# How many items are looked at before others get their turn: less than a millisecond.
ITEMS_PER_TURN = 500

Key = Callable[[T], Any]


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What someone wants to see of a list."""

    limit: int = 50
    sort: str = ""  # a field; with a `-` in front the largest first
    cursor: str | None = None
    q: str = ""

    @classmethod
    def read(
        cls, limit: object = 50, sort: object = "", cursor: object = None, q: object = ""
    ) -> "PageRequest":
        """From what a request has. Raises Refusal."""
        if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST_ITEMS:
            raise Refusal(Code.MALFORMED, f"limit is a whole number from 1 to {MOST_ITEMS}")
        if not isinstance(sort, str) or not isinstance(q, str):
            raise Refusal(Code.MALFORMED, "sort and q are texts")
        if cursor is not None and not isinstance(cursor, str):
            raise Refusal(Code.MALFORMED, "cursor is a text")
        return cls(limit, sort, cursor, q)


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    items: list[T]
    total: int
    next: str | None

    def as_dict(self, shown: Callable[[T], dict[str, Any]]) -> dict[str, Any]:
        return {
            "items": [shown(item) for item in self.items],
            "total": self.total,
            "next": self.next,
        }


class PageBuilder(Generic[T]):
    """Takes items in any order and keeps those that are on the page."""

    def __init__(
        self, asked: PageRequest, keys: Mapping[str, Key[T]], default: str, identity: Key[T]
    ) -> None:
        sort = asked.sort or default
        self._descending = sort.startswith("-")
        field = sort.removeprefix("-")
        if field not in keys:
            raise Refusal(
                Code.MALFORMED, f"this list cannot be sorted by {field}, but by {', '.join(keys)}"
            )
        self._key = keys[field]
        self._identity = identity
        self._limit = asked.limit
        self._after = None if asked.cursor is None else _decode(asked.cursor)
        self._best: list[tuple[Any, Any, T]] = []
        self._total = 0

    def add(self, items: Iterable[T]) -> None:
        rows = [(self._key(item), self._identity(item), item) for item in items]
        self._total += len(rows)
        try:
            rows = [row for row in rows if self._is_behind(row)]
        except TypeError:
            raise _bad_cursor() from None
        choose = nlargest if self._descending else nsmallest
        self._best = choose(self._limit + 1, self._best + rows)

    def page(self) -> ListPage[T]:
        shown = self._best[: self._limit]
        more = len(self._best) > self._limit
        following = _encode(shown[-1][0], shown[-1][1]) if more else None
        return ListPage([item for _, _, item in shown], self._total, following)

    def _is_behind(self, row: tuple[Any, Any, T]) -> bool:
        if self._after is None:
            return True
        place = row[:2]
        return place < self._after if self._descending else place > self._after


async def select(builder: PageBuilder[T], items: Iterator[T]) -> ListPage[T]:
    """Fill a page in small steps, so that the event loop is free in between."""
    while step := list(islice(items, ITEMS_PER_TURN)):
        builder.add(step)
        await asyncio.sleep(0)
    return builder.page()


def _encode(value: Any, identity: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps([value, identity]).encode()).decode()


def _decode(cursor: str) -> tuple[Any, Any]:
    try:
        value, identity = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise _bad_cursor() from None
    # What was a tuple in a sort value is a list in JSON.
    return (tuple(value) if isinstance(value, list) else value), (
        tuple(identity) if isinstance(identity, list) else identity
    )


def _bad_cursor() -> Refusal:
    return Refusal(Code.MALFORMED, "the cursor does not belong to this list and its order")
