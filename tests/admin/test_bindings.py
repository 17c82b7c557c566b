"""Bindings that match nothing of what was published, and the topics that they just miss."""

import pytest

from headwater.admin.bindings import UnmatchedBinding, unmatched
from headwater.protocols.prism.names import filter_of

LONG = 60.0


@pytest.mark.parametrize(
    ("binding", "topics", "near"),
    [
        ("order.*", ["order.new"], "order.new"),
        ("order.*", ["invoice/new", "order.new", "order.old"], "order.new"),
        ("order.#", ["order.new.eu"], "order.new.eu"),
        ("order.new", ["order.new"], "order.new"),
        ("v1/order.*", ["v1/order.new"], "v1/order.new"),
        ("order.*", ["invoice/new"], None),
        ("#", ["dead/shop/orders"], None),
    ],
)
def test_a_binding_that_matches_nothing(binding: str, topics: list[str], near: str | None) -> None:
    wanted = filter_of(binding)
    assert unmatched([wanted], topics, LONG) == [UnmatchedBinding(wanted.text, near)]


@pytest.mark.parametrize(
    ("binding", "topics"),
    [
        ("order.*", ["order.new", "order/new"]),
        ("order.new", ["order/new"]),
        ("#", ["order.new"]),
        ("*", ["order.new"]),
        ("order/new", ["order.new"]),  # this is how a key is spelled whose topic has a dot
        ("order.*", []),  # nothing was published
    ],
)
def test_a_binding_that_matches_something(binding: str, topics: list[str]) -> None:
    assert unmatched([filter_of(binding)], topics, LONG) == []


def test_each_binding_is_looked_at() -> None:
    filters = [filter_of(each) for each in ("a.*", "b.*", "c.*")]
    assert [each.binding for each in unmatched(filters, ["b/1"], LONG)] == ["a/*", "c/*"]


def test_what_takes_too_long_is_not_told() -> None:
    assert unmatched([filter_of("order.*")], ["order.new"], seconds=-1.0) == []
