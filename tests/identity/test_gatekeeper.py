"""A fleet that logs in with one password makes the broker hash it once."""

import asyncio
from pathlib import Path

import pytest

from headwater.actions import PUBLISH
from headwater.commands import Password
from headwater.errors import Code, Refusal
from headwater.identity import gatekeeper
from headwater.identity.book import AccessBook
from headwater.identity.gatekeeper import Gatekeeper
from headwater.identity.users import User, holder_of, is_password_of
from headwater.rights import Rights
from tests.e2e.process import PATIENCE


def test_equal_passwords_are_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []

    def counted(user: User | None, password: str) -> bool:
        hashed.append(password)
        return is_password_of(user, password)

    monkeypatch.setattr(gatekeeper, "is_password_of", counted)
    book = AccessBook(tmp_path)
    book.add_user("ann", "client", "the right one")

    async def check() -> None:
        gate = Gatekeeper(book.users, book.rules, {})
        found: asyncio.Queue[Rights | Refusal] = asyncio.Queue()

        async def log_in(password: str, times: int) -> list[Rights | Refusal]:
            for number in range(times):
                gate.admit(Password("ann", password), f"192.0.2.{number}:5000", found.put_nowait)
            return [await found.get() for _ in range(times)]

        first = await log_in("the right one", 100)
        assert {str(each.principal) for each in first if isinstance(each, Rights)} == {"user:ann"}
        assert len(first) == 100 and hashed == ["the right one"]
        await log_in("the right one", 100)
        assert hashed == ["the right one"]  # it is recognised
        (refused,) = await log_in("a wrong one", 1)
        assert isinstance(refused, Refusal)
        book.change_user("ann", password="another one")
        gate.refresh()
        (refused,) = await log_in("the right one", 1)
        assert isinstance(refused, Refusal)
        gate.stop()

    asyncio.run(check())


def test_who_is_removed_while_a_token_is_looked_up_has_no_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flight asks in threads of its own, between any two steps of a change."""
    book = AccessBook(tmp_path)
    book.add_user("ann", "client")
    token = book.add_token("ann")["token"]

    async def check() -> None:
        gate = Gatekeeper(book.users, book.rules, {})

        def found_and_removed(users: dict[str, User], token: str) -> User | None:
            user = holder_of(users, token)
            book.remove_user("ann")
            gate.refresh()
            return user

        known = gate.user_with_token(token)
        assert known is not None and known.publish.may("a")
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(gatekeeper, "holder_of", found_and_removed)
            late = gate.user_with_token(token)
        for rights in (known, late):
            assert rights is not None and not rights.publish.may("a")
            assert str(rights.refusal(PUBLISH, "a")) == "user:ann is not known any more"
        book.add_user("ann", "client")
        gate.refresh()
        again = gate.rights_of(known.principal)
        assert again.publish.may("a") and not again.ended
        gate.stop()

    asyncio.run(check())


class NoThread:
    """An executor of a system that is out of threads."""

    def submit(self, *_: object) -> None:
        raise RuntimeError("can't start new thread")


def test_a_password_that_cannot_be_hashed_lets_nobody_in_and_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(user: User | None, password: str) -> bool:
        raise MemoryError("scrypt")

    book = AccessBook(tmp_path)
    book.add_user("ann", "client", "the right one")

    async def check() -> None:
        gate = Gatekeeper(book.users, book.rules, {})
        found: asyncio.Queue[Rights | Refusal] = asyncio.Queue()

        async def log_in(times: int) -> list[Rights | Refusal]:
            for _ in range(times):
                gate.admit(Password("ann", "the right one"), "192.0.2.1:5000", found.put_nowait)
            return [await asyncio.wait_for(found.get(), PATIENCE) for _ in range(times)]

        async def all_are_refused() -> None:
            for refused in await log_in(10):
                assert isinstance(refused, Refusal) and refused.code is Code.UNAVAILABLE
                assert str(refused) == "the password cannot be checked now"

        with monkeypatch.context() as broken:
            broken.setattr(gatekeeper, "is_password_of", fails)
            await all_are_refused()
        assert "a password could not be checked: MemoryError('scrypt')" in caplog.text
        with monkeypatch.context() as broken:
            broken.setattr(gate, "_hashing", NoThread())
            await all_are_refused()
        assert "can't start new thread" in caplog.text
        assert not gate.failures  # they have not guessed
        (rights,) = await log_in(1)
        assert isinstance(rights, Rights) and str(rights.principal) == "user:ann"
        gate.stop()

    asyncio.run(check())
