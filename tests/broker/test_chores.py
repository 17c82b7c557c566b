"""Chores: what would hold up everyone is done in slices."""

import asyncio

import pytest

from headwater.broker import chores, router
from headwater.broker.chores import Chores
from headwater.broker.router import Router


def test_very_many_objects_are_let_go_of_in_slices() -> None:
    async def check() -> None:
        work = Chores()
        few = dict.fromkeys(range(chores.DISPOSED_AT_ONCE))
        work.dispose(few)
        assert not work.busy
        many = dict.fromkeys(range(3 * chores.DISPOSED_AT_ONCE))
        left: list[int] = []
        work.dispose(many)
        work.soon(lambda: left.append(len(many)), "someone")
        while work.busy:
            await asyncio.sleep(0)
        assert left == [2 * chores.DISPOSED_AT_ONCE], "others had their turn in between"
        assert not many

    asyncio.run(check())


def test_routes_of_very_many_topics_are_let_go_of_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(router, "REMEMBERED_ROUTES", 2 * chores.DISPOSED_AT_ONCE)

    async def check() -> None:
        work = Chores()
        routes: Router[object] = Router(work)  # type: ignore[type-var]
        for number in range(router.REMEMBERED_ROUTES):
            routes.route(f"t/{number}")
        assert not work.busy
        routes.route("one more")
        assert work.busy
        while work.busy:
            await asyncio.sleep(0)

    asyncio.run(check())


def test_an_owner_of_many_chores_gets_no_more_turns_than_others() -> None:
    async def check() -> None:
        work, done = Chores(), list[str]()
        for _ in range(1000):
            work.soon(lambda: done.append("many"), "many")
        for _ in range(2):
            work.soon(lambda: done.append("few"), "few")
        while work.busy:
            await asyncio.sleep(0)
        assert done[:5] == ["many", "few", "many", "few", "many"]
        assert done.count("many") == 1000

    asyncio.run(check())


def test_what_a_chore_adds_for_its_owner_is_done_in_the_next_turn() -> None:
    async def check() -> None:
        work, done = Chores(), list[int]()

        def act(number: int) -> None:
            done.append(number)
            if number < 3:
                work.soon(lambda: act(number + 1), "owner")

        act(0)
        while work.busy:
            await asyncio.sleep(0)
        assert done == [0, 1, 2, 3]

    asyncio.run(check())
