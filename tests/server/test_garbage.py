"""What is young is collected, what survives is set aside, and all is looked through in quiet."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from headwater.server import garbage
from headwater.server.garbage import FullCollections


class Node:
    """Part of a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def settled() -> Iterator[None]:
    thresholds = gc.get_threshold()
    garbage.settle()
    yield
    garbage.unsettle()
    gc.set_threshold(*thresholds)


def nodes() -> int:
    return sum(isinstance(each, Node) for each in gc.get_objects())


@pytest.mark.usefixtures("settled")
def test_young_cycles_are_collected_and_survivors_are_set_aside() -> None:
    kept, frozen = [Node() for _ in range(100)], gc.get_freeze_count()
    for _ in range(100):
        Node()
    assert nodes() == 200
    gc.collect(1)
    assert nodes() == 0  # those that are kept are no longer looked at, the others are gone
    assert gc.get_freeze_count() >= frozen + len(kept)


@pytest.mark.usefixtures("settled")
def test_a_full_collection_finds_what_was_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is published, or rarely."""
    monkeypatch.setattr(garbage, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(garbage, "QUIET_SECONDS", 0.0)
    died: list[int] = []

    class Mourned(Node):
        def __del__(self) -> None:
            died.append(1)

    async def main(moving: bool) -> None:
        end = iter(range(10**9))
        node = Mourned()
        gc.collect(1)  # from now on it is old
        del node
        collections = FullCollections(lambda: next(end) if moving else 0, lambda: None)
        if moving:
            while next(end) < 100:
                await asyncio.sleep(0.001)
            assert not died
        else:
            while not died:
                await asyncio.sleep(0.001)
        collections.stop()

    asyncio.run(main(moving=True))
    asyncio.run(main(moving=False))


def test_memory_is_given_back_once_when_it_is_quiet_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "LOOK_SECONDS", 0.001)

    async def main() -> None:
        end, looks, rests = 0, 0, list[int]()

        def seen() -> int:
            nonlocal looks
            looks += 1
            return end

        collections = FullCollections(seen, lambda: rests.append(end))
        for end in (3, 7):
            while rests[-1:] != [end]:
                await asyncio.sleep(0.001)
            enough = looks + 10
            while looks < enough:
                await asyncio.sleep(0.001)
        collections.stop()
        assert rests == [3, 7]

    asyncio.run(main())
