"""The index of the active segment knows how many messages of which topic each frame has."""

from pathlib import Path
from typing import Any

import pytest

from headwater.log.embedded.index import MAX_TOPICS, Index, topics_of
from headwater.log.embedded.statistics import LogStatistics
from headwater.log.embedded.store import LogStore
from headwater.message import Batch, Run


def batches(*sizes: tuple[str, int]) -> list[Batch]:
    made, offset = [], 0
    for topic, count in sizes:
        made.append(Batch(offset, 1, Run(topic, [b"x"] * count, protocol="test")))
        offset += count
    return made


def index_of(group: list[Batch]) -> Index:
    index = Index(0, 0)
    topics, counts = topics_of(group)
    index.add(group[-1].end, 100, 1, topics, counts)
    return index


def test_one_topic_needs_no_counts() -> None:
    assert index_of(batches(("a", 3))).counts(0) == {"a": 3}
    assert index_of(batches(("a", 3), ("a", 4))).counts(0) == {"a": 7}


def test_several_topics_are_counted() -> None:
    index = index_of(batches(("a", 3), ("b", 1), ("a", 2)))
    assert index.counts(0) == {"a": 5, "b": 1}
    index.add(20, 200, 2, ("c",))
    index.cut(1)
    assert index.counts(0) == {"a": 5, "b": 1}
    index.cut(0)
    index.add(4, 100, 1, ("x", "y"))
    assert index.counts(0) is None, "the counts of a frame that was cut off are gone"


def test_very_many_topics_are_not_known() -> None:
    index = index_of(batches(*[(f"t{number}", 1) for number in range(MAX_TOPICS + 1)]))
    assert index.counts(0) is None


def test_a_frame_that_comes_while_topics_are_counted_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LogStore.open(tmp_path / "log")
    statistics = LogStatistics(store)
    store.append([Batch(0, 1, Run("a", [b"x"], protocol="test"))])
    count = store.count_topics_of

    def meanwhile(*arguments: Any) -> Any:
        if store.end == 1:
            store.append([Batch(1, 1, Run("a", [b"y"], protocol="test"))])
        return count(*arguments)

    monkeypatch.setattr(store, "count_topics_of", meanwhile)
    statistics.topics()
    assert statistics.topics()["a"].count == 2
    store.close()
