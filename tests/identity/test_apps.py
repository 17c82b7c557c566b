"""Apps in state.db: made once, kept private, shared with a broker that runs."""

import os
import re
import sqlite3
import stat
import threading
import time
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError
from headwater.identity.apps import FILE, Apps
from headwater.log.embedded.state import StateDatabase


@pytest.fixture
def apps(tmp_path: Path) -> Apps:
    return Apps(tmp_path / "data" / FILE)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_app_is_added_listed_and_removed(apps: Apps) -> None:
    before = time.time_ns() // 1000
    secret = apps.add("shop")
    assert re.fullmatch("[0-9a-f]{32}", secret)
    assert apps.add("crm-2_a.b") != secret
    crm, shop = apps.list()
    assert (crm.client_id, shop.client_id, shop.client_secret) == ("crm-2_a.b", "shop", secret)
    assert before <= shop.created <= crm.created <= time.time_ns() // 1000
    apps.remove("shop")
    assert apps.list() == [crm]
    assert apps.add("shop") != secret


def test_nothing_is_made_to_look_at_it(apps: Apps, tmp_path: Path) -> None:
    assert apps.list() == []
    with pytest.raises(HeadwaterError, match=r'^there is no app "shop" to remove; there are none$'):
        apps.remove("shop")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "x" * 65, "a\n", "a:b", "a@b"])
def test_what_is_no_name(apps: Apps, name: str, tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError, match=r"cannot be the name of an app: 1 to 64 letters"):
        apps.add(name)
    assert not list(tmp_path.iterdir())


def test_an_app_is_there_already(apps: Apps) -> None:
    secret = apps.add("shop")
    with pytest.raises(HeadwaterError, match=r'^there is an app "shop" already; \'headwater app'):
        apps.add("shop")
    assert [app.client_secret for app in apps.list()] == [secret]


def test_an_app_that_is_not_there(apps: Apps) -> None:
    apps.add("shop")
    apps.add("crm")
    with pytest.raises(
        HeadwaterError, match=r'^there is no app "x" to remove; there are crm, shop$'
    ):
        apps.remove("x")


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        Apps(tmp_path / "new" / FILE).add("shop")
        assert mode(tmp_path / "new" / FILE) == 0o600
        # One that is there already, with its journal, is closed to others before a secret is in it.
        open_to_all = tmp_path / FILE
        with sqlite3.connect(open_to_all) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("CREATE TABLE t (x)")
            database.commit()
            assert mode(open_to_all) != 0o600
            Apps(open_to_all).add("shop")
            files = sorted(tmp_path.glob(f"{FILE}*"))
            assert [file.name for file in files] == [FILE, f"{FILE}-shm", f"{FILE}-wal"]
            assert {mode(file) for file in files} == {0o600}
        database.close()
    finally:
        os.umask(old)


def test_secrets_are_not_in_representations(apps: Apps) -> None:
    secret = apps.add("shop")
    assert secret not in repr(apps.list())


def test_the_state_of_a_broker_is_shared(tmp_path: Path) -> None:
    state, apps = StateDatabase(tmp_path / FILE, 1, 5), Apps(tmp_path / FILE)
    state.save({"a": 1}, {}, {})
    assert apps.list() == []
    apps.add("shop")
    state.save({"a": 2}, {}, {})
    assert [app.client_id for app in apps.list()] == ["shop"]
    assert state.cursors() == {"a": 2}
    state.close()
    again = StateDatabase(tmp_path / FILE, 1, 5)
    assert again.cursors() == {"a": 2}
    again.close()


def test_many_at_once(apps: Apps) -> None:
    threads = [threading.Thread(target=apps.add, args=(f"app{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(apps.list()) == 8


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("this is no database, but a text of some length" * 100)
    with pytest.raises(HeadwaterError, match=r"state\.db: file is not a database$"):
        Apps(tmp_path / FILE).list()
