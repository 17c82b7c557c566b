"""`headwater log`, on real files."""

import base64
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

from headwater.cli.log import app
from headwater.errors import HeadwaterError, LogDamaged, LogLocked, Refusal
from headwater.log import record
from headwater.log.embedded.store import LogStore
from tests.log.helpers import Message, append, fill, flip, make_run, messages, seal_all

FIRST = "00000000000000000000.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def written(data: Path) -> list[Message]:
    """A log with sealed segments and an active one."""
    store = LogStore.open(data / "log", segment_bytes=6_000)
    written = fill(store, 20)
    seal_all(store)
    written += messages(
        append(
            store,
            make_run("plain/text", "größe [bold]".encode(), b"\x1b[31mred\nline"),
            make_run("binary/x", b"\xff\x00", headers=(("k", "v"), ("k", "w"))),
        )
    )
    store.close()
    return written


def run(data: Path, *arguments: str, keys: str = "") -> Result:
    command, *others = arguments
    return CliRunner().invoke(app, [command, "--data", str(data), *others], input=keys)


def output(data: Path, *arguments: str) -> str:
    result = run(data, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_option_has_a_help_text() -> None:
    for command in ("stat", "tail", "dump", "verify", "repair"):
        result = CliRunner().invoke(app, [command, "--help"])
        assert result.exit_code == 0
        assert "--data" in result.stdout


def test_stat(data: Path, written: list[Message]) -> None:
    text = output(data, "stat", "--topics", "3")
    assert f"0 to {len(written) - 1}: {len(written)} messages" in text
    assert "2023-11-14T22:13:20" in text
    assert FIRST in text
    assert "sealed" in text
    assert "active" in text
    topic, count = text.splitlines()[-4].split()
    assert (topic, int(count)) == ("t/0", sum(m.topic == "t/0" for m in written))
    assert "more topics" in text
    assert "topic" not in output(data, "stat", "--topics", "0")


def test_stat_of_an_empty_log(data: Path) -> None:
    LogStore.open(data / "log").close()
    assert "none; the next message gets offset 0" in output(data, "stat")


def test_tail(data: Path, written: list[Message]) -> None:
    lines = output(data, "tail", "-n", "4").splitlines()
    assert [int(line.split()[0]) for line in lines] == [m.offset for m in written[-4:]]
    assert lines[1].endswith("plain/text  größe [bold]")
    assert lines[2].endswith(r"plain/text  \x1b[31mred\nline")
    assert lines[3].endswith("binary/x  base64:/wA=")
    assert output(data, "tail", "-n", "0") == ""
    assert len(output(data, "tail", "-n", "1000").splitlines()) == len(written)


def test_tail_of_a_topic_looks_back_as_far_as_it_takes(data: Path, written: list[Message]) -> None:
    lines = output(data, "tail", "-n", "5", "--topic", "+/2").splitlines()
    expected = [m.offset for m in written if m.topic in ("t/2", "u/2")][-5:]
    assert [int(line.split()[0]) for line in lines] == expected
    assert output(data, "tail", "--topic", "nobody/*") == ""


def test_tail_follows(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LogStore.open(data / "log", segment_bytes=2_000)
    fill(store, 2)
    turns = iter(range(4))

    def write_more(seconds: float) -> None:
        if next(turns) == 3:
            raise KeyboardInterrupt
        fill(store, 2)

    monkeypatch.setattr("headwater.cli.log.sleep", write_more)
    result = run(data, "tail", "-n", "1", "--follow", "--topic", "u/*")
    store.close()
    assert [line.split()[0] for line in result.stdout.splitlines()] == [
        *("5", "8", "11", "14", "17", "20", "23")
    ]


def test_dump_as_json(data: Path, written: list[Message]) -> None:
    dumped = [json.loads(line) for line in output(data, "dump").splitlines()]
    assert len(dumped) == len(written)
    for got, message in zip(dumped, written, strict=True):
        payload = got["payload"].encode()
        if got.get("encoding") == "base64":
            payload = base64.b64decode(payload)
        assert payload == message.payload
        assert (got["offset"], got["topic"]) == (message.offset, message.topic)
        assert tuple(map(tuple, got["headers"])) == message.headers
        assert (got["protocol"], got["publisher"]) == (message.protocol, message.publisher)
    assert dumped[-1]["encoding"] == "base64"
    assert dumped[0]["timestamp"] == "2023-11-14T22:13:20.000000Z"


def test_dump_of_a_part(data: Path, written: list[Message], tmp_path: Path) -> None:
    target = tmp_path / "part.jsonl"
    arguments = ("--from", "7", "--to", "22", "--topic", "t/*", "--output", str(target))
    assert output(data, "dump", *arguments) == ""
    offsets = [json.loads(line)["offset"] for line in target.read_text().splitlines()]
    assert offsets == [m.offset for m in written[7:22] if m.topic.startswith("t/")]


def test_dump_as_parquet(data: Path, written: list[Message], tmp_path: Path) -> None:
    target = tmp_path / "all.parquet"
    output(data, "dump", "--format", "parquet", "-o", str(target))
    table = pa.parquet.read_table(target)
    assert table.column_names == record.FLAT_SCHEMA.names
    assert table["offset"].to_pylist() == [m.offset for m in written]
    assert table["value"].to_pylist() == [m.payload for m in written]
    assert table["headers"].to_pylist()[-1] == [("k", "v"), ("k", "w")]
    output(data, "dump", "--format", "parquet", "-o", str(target), "--topic", "u/*", "--to", "9")
    assert pa.parquet.read_table(target)["offset"].to_pylist() == [2, 5, 8]
    result = run(data, "dump", "--format", "parquet")
    assert isinstance(result.exception, HeadwaterError)
    assert "--output" in str(result.exception)


def test_verify_says_that_all_is_well(data: Path, written: list[Message]) -> None:
    assert "no damage" in output(data, "verify")


def test_verify_lists_damage(data: Path, written: list[Message]) -> None:
    flip(data / "log" / FIRST, 1_000)
    result = run(data, "verify")
    assert result.exit_code == 1
    assert f"{FIRST}: offsets 0 to " in result.stdout
    assert "are lost: the checksum does not fit" in result.stdout
    assert "headwater log repair" in result.stdout


def test_verify_tells_an_unfinished_write_from_damage(data: Path, written: list[Message]) -> None:
    with sorted((data / "log").glob("*.log"))[-1].open("ab") as file:
        file.write(b"half")
    text = output(data, "verify")
    assert "4 bytes of an unfinished write" in text
    assert "no damage" in text


def test_repair_asks_first(data: Path, written: list[Message]) -> None:
    path = data / "log" / FIRST
    flip(path, 1_000)
    before = path.read_bytes()
    result = run(data, "repair", keys="n\n")
    assert result.exit_code == 1
    assert "are lost" in result.stdout
    assert path.read_bytes() == before
    result = run(data, "repair", keys="y\n")
    assert result.exit_code == 0
    assert "0 messages kept" in result.stdout
    assert f"{FIRST}.damaged" in result.stdout.replace("\n", "")
    text = output(data, "verify")
    assert "lost before an earlier repair" in text
    assert "no damage" in text
    assert json.loads(output(data, "dump").splitlines()[0])["offset"] > 0


def test_repair_without_asking(data: Path, written: list[Message]) -> None:
    flip(data / "log" / FIRST, 3)
    assert "0 lost" in output(data, "repair", "--yes")
    assert "no damage" in output(data, "repair", "--yes")
    assert len(output(data, "dump").splitlines()) == len(written)


def test_repair_needs_the_broker_stopped(data: Path) -> None:
    store = LogStore.open(data / "log")
    result = run(data, "repair", "--yes")
    assert isinstance(result.exception, LogLocked)
    store.close()


@pytest.mark.parametrize("command", ["stat", "tail", "dump", "verify", "repair"])
def test_without_a_log_all_say_so(data: Path, command: str) -> None:
    result = run(data, command)
    assert isinstance(result.exception, HeadwaterError)
    assert "there is no log in" in str(result.exception)
    assert not data.exists(), "looking makes nothing"


def test_a_damaged_log_is_dumped_up_to_the_damage(data: Path, written: list[Message]) -> None:
    second = sorted((data / "log").glob("*.log"))[1]
    flip(second, 1_000)
    result = run(data, "dump")
    assert isinstance(result.exception, LogDamaged)
    assert len(result.stdout.splitlines()) == int(second.stem)


def test_a_filter_that_makes_no_sense(data: Path, written: list[Message]) -> None:
    result = run(data, "tail", "--topic", "a/*/b")
    assert isinstance(result.exception, Refusal)
