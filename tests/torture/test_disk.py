"""Short forms of the tortures that `python -m torture --only` does for long: crashes of the machine
at each operation on the disk, damage, failing operations, a clock that jumps, and all clients at
once while the broker is killed."""

from pathlib import Path
from random import Random

import pytest

from tests.e2e.faults import injected
from torture import boundaries, clock, flips, full_disk
from torture.boundaries import Task
from torture.disk.crash import Choice, Disk
from torture.disk.memory import in_memory
from torture.disk.recording import Recording, record
from torture.disk.shim import AVAILABLE
from torture.disk.trace import Operation
from torture.everyone import kill

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(not AVAILABLE, reason="needs Linux and a C compiler"),
]

OPERATIONS = 900
FAR = 1 << 60


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    place = tmp_path_factory.mktemp("recorded") / "run"
    made = record(place, Random(1), operations=OPERATIONS, kills=1)
    made.save()
    return made


def some(recording: Recording, every: int) -> Task:
    return Task(recording.place / "recording", range(0, FAR, every))


def test_a_trace_leads_to_the_files_that_are_there(recorded: Recording) -> None:
    """Otherwise all that is made of it would be worth nothing."""
    disk = Disk(recorded.root)
    for operation in recorded.operations():
        disk.apply(operation)
    real = {
        str(path.relative_to(recorded.root)): path.read_bytes() if path.is_file() else None
        for path in recorded.data.rglob("*")
    }
    assert disk.state(Choice()) == {"data": None, **real}


@pytest.mark.smoke
def test_a_crash_at_every_operation(recorded: Recording) -> None:
    result = some(recorded, 12).run()
    assert not result.bad, "\n".join(result.bad[:3])
    assert result.opened > 50, result
    assert len(recorded.accounts.acknowledged) > 20


def forgets(part: str) -> "boundaries.Ignores":
    """A disk that takes some syncs for nothing."""

    def ignores(operation: Operation, path: str) -> bool:
        return part in path

    return ignores


@pytest.mark.parametrize("part", ["/log/0", "users.json", "flight.db"])
def test_a_sync_that_is_missing_is_found_out(recorded: Recording, part: str) -> None:
    task = some(recorded, 10)
    result = Task(task.recording, task.numbers, ignores=forgets(part)).run()
    assert result.bad


def test_messages_that_were_not_synced_are_found_out(tmp_path: Path) -> None:
    """The broker is told to leave the syncs to the system."""
    recording = record(tmp_path / "run", Random(1), operations=400, kills=0, sync="os")
    recording.save()
    assert some(recording, 10).run().lost


def test_damage(recorded: Recording) -> None:
    outcomes = flips.Task(recorded.place / "recording", 1, 120).run()
    assert not outcomes.bad, "\n".join(outcomes.bad[:3])
    assert outcomes.total()["refused"] > 30


def test_every_operation_fails() -> None:
    verdict = full_disk.days(every=60, tell=lambda text: None)
    assert verdict.good, verdict
    assert verdict.harm["operations failed"] > 20


def test_operations_fail_while_clients_are_at_work() -> None:
    verdict = full_disk.crowd(rounds=8, chance=Random(1), tell=lambda text: None)
    assert verdict.good, verdict
    assert verdict.harm["operations failed"] >= 8


def test_the_clock_jumps() -> None:
    with in_memory() as place:
        verdict = clock.torture(place, 3, 0.0, Random(1))
    assert verdict.good, verdict


def test_a_broker_that_believes_its_clock_is_found_out() -> None:
    with in_memory() as place:
        credulous = injected(place, "from headwater import clock; clock.TOLERANCE_SECONDS = 1e12")
        assert clock.torture(place, 1, 0.0, Random(1), **credulous).lost


@pytest.mark.smoke
def test_kill_with_clients_of_all_kinds(tmp_path: Path) -> None:
    verdict = kill.torture(tmp_path, 2, 1.0, Random(1))
    assert verdict.good, verdict
    assert 0 < verdict.acknowledged <= verdict.found <= verdict.sent
