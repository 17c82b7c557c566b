"""A flight.db that is lost is told, whatever has become of it; one that nobody has used is not."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.console.stand import client_of, console_of
from tests.e2e.process import BrokerProcess
from tests.flight.client import Client, rows

LOST = "flight.db is missing or empty, and batches were noted in it"


def append(broker: BrokerProcess) -> bool:
    """Returns whether the broker has had this batch before."""
    with closing(Client(broker.ports["flight"])) as client:
        done = client.put(rows(("a", b"x")), do="append", producer="p", sequence=1)
        return bool(done["repeated"])


def remove(database: Path) -> None:
    database.unlink()


def empty(database: Path) -> None:
    database.write_bytes(b"")


def alerts_of(broker: BrokerProcess) -> list[tuple[str, str]]:
    with client_of(broker) as client:
        found = client.get("/api/v1/overview").json()["alerts"]
    return [(each["kind"], each["message"]) for each in found if each["kind"] == "state"]


@pytest.mark.parametrize("lose", [remove, empty])
def test_a_database_that_was_used_is_missed(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    with console_of(tmp_path / "data") as broker:
        assert not append(broker) and append(broker)
        assert alerts_of(broker) == []
        broker.stop()
        assert LOST not in broker.log
        lose(broker.data / "flight.db")
        broker.start()
        ((_, message),) = alerts_of(broker)
        assert message.startswith(LOST)
        assert not append(broker)  # it goes on, and does not know that batch any more
        broker.stop()
        assert broker.log.count(LOST) == 1
        broker.start()
        assert append(broker)
        broker.stop()
        assert broker.log.count(LOST) == 1


def test_a_database_of_an_earlier_version_is_known_after_one_start(tmp_path: Path) -> None:
    """Its notes say nothing of batches: as after a state.db that was lost."""
    with BrokerProcess(tmp_path / "data") as broker:
        append(broker)
        broker.stop()
        (broker.data / "state.db").unlink()
        broker.start()
        broker.stop()
        (broker.data / "flight.db").unlink()
        broker.start()
        broker.stop()
        assert LOST in broker.log


def test_a_database_that_nobody_used_is_not_missed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.stop()
        (broker.data / "flight.db").unlink()
        broker.start()
        broker.stop()
        assert "flight.db" not in broker.log
