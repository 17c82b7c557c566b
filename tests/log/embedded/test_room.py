"""Room behind the last frame of the active segment: zeros, so that small frames are synced soon."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from headwater.errors import LogDamaged
from headwater.log.embedded import file, lock
from headwater.log.embedded.file import LogFile
from headwater.log.embedded.store import LogStore
from headwater.log.embedded.verify import verify
from headwater.log.embedded.view import View
from headwater.message import Batch
from tests.log.helpers import append, contents, fill, make_run

FIRST = "00000000000000000000.log"


def behind(store: LogStore) -> bytes:
    """What follows the last frame."""
    active = store.segments[-1]
    return active.path.read_bytes()[active.size :]


def test_small_frames_are_written_into_the_room_and_the_file_does_not_grow(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    fill(store, 1)
    size = (tmp_path / FIRST).stat().st_size
    room = behind(store)
    assert len(room) > 100_000
    assert not room.strip(b"\0")
    fill(store, 5)
    assert (tmp_path / FIRST).stat().st_size == size
    assert len(behind(store)) < len(room)
    store.close()
    assert (tmp_path / FIRST).stat().st_size == store.segments[-1].size


def test_large_frames_get_no_room(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    append(store, make_run("t", b"." * 100_000))
    assert behind(store) == b""
    store.close()


def test_room_is_no_unfinished_write(tmp_path: Path) -> None:
    killed, copy = tmp_path / "killed", tmp_path / "copy"
    store = LogStore.open(killed)
    written = fill(store, 3)
    store.sync()
    shutil.copytree(killed, copy)
    assert contents(View.open(copy)) == written
    assert [(report.damage, report.torn) for report in verify(copy)] == [([], 0)]
    again = LogStore.open(copy)
    assert (contents(again), again.torn) == (written, 0)
    written += fill(again, 2)
    assert contents(again) == written
    again.close()
    store.close()


def test_what_was_torn_in_the_room_is_cut_off(tmp_path: Path) -> None:
    """A crash may leave any block of a write behind, also one that is not its first."""
    killed = tmp_path / "killed"
    store = LogStore.open(killed)
    written = fill(store, 3)
    store.sync()
    stop = store.segments[-1].size
    append(store, make_run("t", b"not synced" * 1_000))
    frame = (killed / FIRST).read_bytes()[stop : store.segments[-1].size]
    for number, block in enumerate((frame[:4096], bytes(4096) + frame[4096:8192])):
        copy = tmp_path / str(number)
        shutil.copytree(killed, copy)
        with (copy / FIRST).open("r+b") as file:
            file.seek(stop)
            file.write(block + bytes(len(frame) - len(block)))
        again = LogStore.open(copy)
        assert contents(again) == written
        assert again.torn > 0
        again.close()
    store.close()


def test_a_synced_frame_that_became_zeros_is_damage(tmp_path: Path) -> None:
    killed, copy = tmp_path / "killed", tmp_path / "copy"
    store = LogStore.open(killed)
    fill(store, 3)
    stop = store.segments[-1].size
    fill(store, 1)
    store.sync()
    shutil.copytree(killed, copy)
    store.close()
    data = (copy / FIRST).read_bytes()
    (copy / FIRST).write_bytes(data[:stop] + bytes(len(data) - stop))
    assert [bool(report.damage) for report in verify(copy)] == [True]
    with pytest.raises(LogDamaged):
        LogStore.open(copy)


def test_without_room_on_the_disk_frames_are_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LogStore.open(tmp_path)
    write = LogFile.write

    def no_zeros(self: LogFile, position: int, parts: list[memoryview], flags: int = 0) -> None:
        if not bytes(parts[0]).strip(b"\0"):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, position, parts, flags)

    monkeypatch.setattr(LogFile, "write", no_zeros)
    written = fill(store, 3)
    assert behind(store) == b""
    assert contents(store) == written
    store.close()


def test_after_going_back_there_is_new_room(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    written = fill(store, 2)
    fill(store, 1)
    store.rewind(len(written))
    assert behind(store) == b""
    written += fill(store, 1)
    assert not behind(store).strip(b"\0")
    assert contents(store) == written
    store.close()


def test_what_fits_into_the_room_is_synced_by_the_write_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LogStore.open(tmp_path)
    durable: list[bool] = []

    def step(sync: bool = False) -> None:
        batch = Batch(store.end, 1, make_run("t", b"."))
        durable.append(store.append([batch], durably=True))
        assert (store.durable == store.end) is durable[-1]
        if sync:
            store.sync()

    step()  # there is no room yet
    step()  # the one before it is not durable, and would not be by this write
    step(sync=True)
    monkeypatch.setattr(LogFile, "sync", lambda self: pytest.fail("it was synced"))
    step()
    step()
    assert durable == [False, False, False, True, True]
    monkeypatch.undo()
    noted = lock.extent(tmp_path, store.identity)
    assert noted.end == store.end == 5
    assert sum(store.syncs.counts) == 3
    store.close()


@pytest.mark.parametrize("refused", [False, True])
def test_without_such_a_call_it_is_written_and_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """The system has none, or the file system refuses it."""
    store = LogStore.open(tmp_path)
    written = fill(store, 1)
    store.sync()
    synced: list[int] = []
    real = os.pwritev

    def plain(fd: int, parts: list[memoryview], position: int, flags: int) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real(fd, parts, position)

    monkeypatch.setattr(os, "pwritev", plain)
    monkeypatch.setattr(file, "_sync", synced.append)
    if not refused:
        monkeypatch.setattr(file, "_DURABLY", 0)
    assert store.append([Batch(store.end, 1, make_run("t", b"."))], durably=True)
    assert len(synced) == 1
    monkeypatch.undo()
    assert len(contents(store)) == len(written) + 1
    store.close()
