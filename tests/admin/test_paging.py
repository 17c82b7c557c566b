"""Pages of long lists."""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.admin.paging import ListPage, PageBuilder, PageRequest, select
from headwater.errors import Refusal

Item = tuple[int, str]
KEYS: Mapping[str, Callable[[Item], Any]] = {"number": lambda item: item[0], "name": lambda i: i[1]}


def page(items: list[Item], **asked: Any) -> ListPage[Item]:
    builder = PageBuilder(PageRequest.read(**asked), KEYS, "name", lambda item: item[1])
    return asyncio.run(select(builder, iter(items)))


@pytest.mark.property
@given(
    st.lists(st.integers(0, 5), max_size=60),
    st.sampled_from(["number", "-number", "name", "-name"]),
    st.integers(1, 20),
)
def test_all_pages_together_are_the_sorted_list(numbers: list[int], sort: str, limit: int) -> None:
    items = [(number, f"n{index}") for index, number in enumerate(numbers)]
    random.Random(1).shuffle(items)
    found: list[Item] = []
    cursor = None
    while True:
        got = page(items, sort=sort, limit=limit, cursor=cursor)
        assert got.total == len(items) and len(got.items) <= limit
        found += got.items
        cursor = got.next
        if cursor is None:
            break
    key = KEYS[sort.removeprefix("-")]
    expected = sorted(items, key=lambda item: (key(item), item[1]), reverse=sort.startswith("-"))
    assert found == expected


def test_a_page_goes_on_although_items_come_and_go() -> None:
    items = [(n, f"n{n}") for n in range(10)]
    first = page(items, sort="number", limit=4)
    changed = [*items[5:], (-1, "new"), (100, "late")]
    second = page(changed, sort="number", limit=10, cursor=first.next)
    assert [number for number, _ in second.items] == [5, 6, 7, 8, 9, 100]


@pytest.mark.parametrize(
    "asked",
    [
        {"limit": 0},
        {"limit": 201},
        {"limit": True},
        {"limit": "5"},
        {"sort": "size"},
        {"sort": 1},
        {"q": 1},
        {"cursor": 5},
        {"cursor": "x"},
        {"cursor": "W10="},
        {"cursor": "eyJhIjogMX0="},
        {"cursor": "WzEsIDJd"},  # [1, 2], where texts are compared
    ],
)
def test_what_makes_no_sense_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(Refusal):
        page([(1, "a"), (2, "b")], **asked)
