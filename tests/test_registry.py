"""The registry of protocols: names, and what installed packages may add."""

from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from headwater import registry
from headwater.errors import HeadwaterError
from headwater.protocols import BUILT_IN


def test_a_name_belongs_to_one_protocol() -> None:
    with pytest.raises(HeadwaterError, match="two protocols"):
        registry._by_name(*BUILT_IN, BUILT_IN[0])


def test_a_scheme_belongs_to_one_protocol() -> None:
    first = BUILT_IN[0]
    with pytest.raises(HeadwaterError, match=f"begin with {first.name}s://"):
        registry._by_scheme([first, replace(first, name=f"{first.name}s")])


def test_an_entry_point_names_a_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints([EntryPoint("wrong", "headwater.registry:GROUP", registry.GROUP)])
    monkeypatch.setattr(registry, "entry_points", lambda group: points.select(group=group))
    with pytest.raises(HeadwaterError, match=r"\"wrong\" .* is not a protocol"):
        list(registry._installed())


def test_an_entry_point_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints([EntryPoint("lost", "headwater_lost:PROTOCOL", registry.GROUP)])
    monkeypatch.setattr(registry, "entry_points", lambda group: points.select(group=group))
    with pytest.raises(HeadwaterError, match=r'"lost" .* cannot be loaded: No module named'):
        list(registry._installed())
