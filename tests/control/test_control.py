"""The control socket, with real sockets on both sides and both event loops."""

import asyncio
import gc
import json
import logging
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from headwater.control import NoBroker, call, find
from headwater.control.protocol import MOST_BYTES, NAME, address
from headwater.control.server import Handler
from headwater.errors import Code, HeadwaterError, Refusal
from tests.control.helpers import PATIENCE, LoopFactory, serving


async def echo(**arguments: Any) -> Any:
    return arguments


async def add(a: int, b: int = 1) -> int:
    return a + b


async def count(upto: int, progress: Callable[[int, int], None]) -> str:
    for number in range(1, upto + 1):
        progress(number, upto)
        await asyncio.sleep(0)
    return "counted"


async def note(
    seconds: float = 1.0, text: str | None = None, pairs: dict[str, str] | None = None
) -> bool:
    return True


async def refuse(sentence: str) -> None:
    raise Refusal(Code.NOT_FOUND, sentence)


async def fail() -> None:
    raise KeyError("a secret of the broker")


async def read() -> None:
    raise OSError(24, "Too many open files")


async def unspeakable() -> object:
    return object()


HANDLERS: dict[str, Handler] = {
    "echo": echo,
    "add": add,
    "count": count,
    "note": note,
    "refuse": refuse,
    "fail": fail,
    "read": read,
    "unspeakable": unspeakable,
}


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> LoopFactory:
    factory: LoopFactory = request.param
    return factory


@pytest.fixture
def data(tmp_path: Path, loop_factory: LoopFactory) -> Iterator[Path]:
    """A data directory with a broker."""
    with serving(tmp_path, HANDLERS, loop_factory):
        yield tmp_path


def connect(directory: Path) -> socket.socket:
    wire = socket.socket(socket.AF_UNIX)
    wire.settimeout(PATIENCE)
    with address(directory) as path:
        wire.connect(path)
    return wire


def converse(directory: Path, sent: bytes) -> list[dict[str, Any]]:
    """All lines that come for what is sent."""
    with connect(directory) as wire:
        wire.sendall(sent)
        wire.shutdown(socket.SHUT_WR)
        with wire.makefile("rb") as lines:
            return [json.loads(line) for line in lines]


# Calls


def test_a_call_has_a_result(data: Path) -> None:
    assert call(data, "add", a=2) == 3
    assert call(data, "add", a=2, b=5) == 7
    assert call(data, "echo", name="größe", nested={"a": [1, None]}) == {
        "name": "größe",
        "nested": {"a": [1, None]},
    }


def test_progress_comes_before_the_result(data: Path) -> None:
    seen: list[tuple[int, int]] = []
    assert call(data, "count", lambda *each: seen.append(each), upto=3) == "counted"
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert call(data, "count", upto=3) == "counted"


def test_a_refusal_is_the_answer(data: Path) -> None:
    with pytest.raises(HeadwaterError, match=r"^there is no queue größe$"):
        call(data, "refuse", sentence="there is no queue größe")


def test_what_the_system_refuses_is_told(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(
            HeadwaterError, match=r"^the broker cannot do this now: Too many open files$"
        ),
    ):
        call(data, "read")
    assert not caplog.records[0].exc_info


@pytest.mark.parametrize("do", ["fail", "unspeakable"])
def test_other_errors_are_logged_and_not_told(
    data: Path, do: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(HeadwaterError, match=r"^internal error; the log of the broker says more$"),
    ):
        call(data, do)
    assert caplog.records[0].exc_info
    assert call(data, "add", a=1) == 2


@pytest.mark.parametrize(
    ("do", "arguments", "sentence"),
    [
        ("ad", {}, 'this broker knows no command "ad"'),
        ("add", {}, "add: missing a required argument: 'a'"),
        ("add", {"a": 1, "c": 2}, "add: got an unexpected keyword argument 'c'"),
        ("count", {}, "count: missing a required argument: 'upto'"),
        ("add", {"a": "1"}, 'add: "a" has to be a whole number of 64 bits'),
        ("add", {"a": True}, 'add: "a" has to be a whole number of 64 bits'),
        ("add", {"a": 2**63}, 'add: "a" has to be a whole number of 64 bits'),
        ("add", {"a": 1.5}, 'add: "a" has to be a whole number of 64 bits'),
        ("note", {"seconds": "long"}, 'note: "seconds" has to be a number'),
        ("note", {"text": 1}, 'note: "text" has to be a text or null'),
        ("note", {"pairs": {"a": 1}}, 'note: "pairs" has to be an object or null'),
    ],
)
def test_wrong_calls(data: Path, do: str, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(HeadwaterError) as caught:
        call(data, do, **arguments)
    assert str(caught.value) == sentence


def test_right_calls(data: Path) -> None:
    assert call(data, "note", seconds=2, text="\U0001f600", pairs={"a": "b"}) is True
    assert call(data, "note", seconds=0.5, text=None, pairs=None) is True


def test_two_at_once(tmp_path: Path) -> None:
    entered, leave = threading.Event(), threading.Event()

    async def wait() -> str:
        entered.set()
        await asyncio.to_thread(leave.wait, PATIENCE)
        return "waited"

    results: list[str] = []
    with serving(tmp_path, {**HANDLERS, "wait": wait}):
        thread = threading.Thread(target=lambda: results.append(call(tmp_path, "wait")))
        thread.start()
        assert entered.wait(PATIENCE)
        assert call(tmp_path, "add", a=1) == 2
        leave.set()
        thread.join(PATIENCE)
    assert results == ["waited"]


# Bytes


def test_a_connection_carries_many_requests(data: Path) -> None:
    sent = b'{"do":"add","with":{"a":1}}\n{"do": "echo"}\n{"do":"count","with":{"upto":1}}\n'
    assert converse(data, sent) == [
        {"result": 2},
        {"result": {}},
        {"progress": {"done": 1, "total": 1}},
        {"result": "counted"},
    ]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"", "the request is not JSON"),
        (b"add", "the request is not JSON"),
        (b'{"do":"add"', "the request is not JSON"),
        (b"\xff\xfe\xfd", "the request is not JSON"),
        (b"[" * 100_000, "the request is not JSON"),
        (b"[]", 'a request is an object with a text "do"'),
        (b"{}", 'a request is an object with a text "do"'),
        (b'{"do":"add","with":{"a":NaN}}', "the request is not JSON"),
        (b'{"do":"note","with":{"text":"\\ud800"}}', "the request is not JSON"),
        (b'{"do":3}', 'a request is an object with a text "do"'),
        (b'{"do":"add","with":[1]}', '"with" is an object'),
        (b'{"do":"add","what":1}', 'a request has "do" and "with", and no "what"'),
        (b'{"do":"count","with":{"upto":1,"progress":2}}', 'count: "progress" is no argument'),
    ],
)
def test_a_bad_line_is_answered_and_the_connection_lives(
    data: Path, line: bytes, sentence: str
) -> None:
    answers = converse(data, line + b'\n{"do":"add","with":{"a":1}}\n')
    assert answers == [{"error": sentence}, {"result": 2}]


@pytest.mark.parametrize("surplus", [1, 5 * MOST_BYTES])
def test_a_line_that_is_too_long(data: Path, surplus: int) -> None:
    sent = b"x" * (MOST_BYTES + surplus) + b'\n{"do":"add","with":{"a":1}}\n'
    assert converse(data, sent) == [
        {"error": f"a request has at most {MOST_BYTES} bytes"},
        {"result": 2},
    ]


def test_a_long_line_and_a_longer_answer(data: Path) -> None:
    text = "x" * (MOST_BYTES - 100)
    assert call(data, "echo", text=text) == {"text": text}
    assert len(call(data, "echo", text="\\" * (MOST_BYTES // 2 - 100))["text"]) > MOST_BYTES // 3


def test_an_unfinished_line_is_no_request(data: Path) -> None:
    assert converse(data, b'{"do":"add","with":{"a":1}}') == []
    assert converse(data, b"x" * (2 * MOST_BYTES)) == []


def test_a_client_that_goes_away_disturbs_nobody(
    tmp_path: Path, loop_factory: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    entered, finished = threading.Event(), threading.Event()

    async def long(progress: Callable[[int, int], None]) -> str:
        entered.set()
        for number in range(100):
            progress(number, 100)
            await asyncio.sleep(0.001)
        finished.set()
        return "x" * 1_000_000

    with serving(tmp_path, {"long": long, "add": add}, loop_factory):
        wire = connect(tmp_path)
        wire.sendall(b'{"do":"long"}\n')
        assert entered.wait(PATIENCE)
        wire.close()
        assert finished.wait(PATIENCE)
        assert call(tmp_path, "add", a=1) == 2
    assert not caplog.records


def test_progress_that_nobody_reads_is_not_kept(tmp_path: Path) -> None:
    finished = threading.Event()

    async def long(progress: Callable[[int, int], None]) -> str:
        result = await count(100_000, progress)
        finished.set()
        return result

    with serving(tmp_path, {"long": long}), connect(tmp_path) as wire:
        wire.sendall(b'{"do":"long"}\n')
        assert finished.wait(PATIENCE)
        with wire.makefile("rb") as file:
            lines = [json.loads(line) for line in iter(file.readline, b'{"result":"counted"}\n')]
    assert 0 < len(lines) < 50_000


# Bounds


def test_a_request_that_has_begun_has_to_end(tmp_path: Path, loop_factory: LoopFactory) -> None:
    with (
        serving(tmp_path, HANDLERS, loop_factory, unfinished_seconds=0.3),
        connect(tmp_path) as silent,
        connect(tmp_path) as half,
    ):
        half.sendall(b'{"do":')
        assert _rest_of(half) == b""
        silent.sendall(b'{"do":"add","with":{"a":1}}\n')  # who has not begun may take long
        assert json.loads(silent.recv(1000)) == {"result": 2}


def test_an_answer_has_to_be_read(tmp_path: Path, loop_factory: LoopFactory) -> None:
    async def much() -> str:
        return "x" * (8 << 20)

    handlers = {**HANDLERS, "much": much}
    with (
        serving(tmp_path, handlers, loop_factory, unfinished_seconds=0.3, connections=1),
        connect(tmp_path) as wire,
    ):
        wire.sendall(b'{"do":"much"}\n')
        _wait_for_room(tmp_path)
        assert len(_rest_of(wire)) < 8 << 20


def test_there_are_so_many_connections(tmp_path: Path, loop_factory: LoopFactory) -> None:
    with serving(tmp_path, HANDLERS, loop_factory, connections=3):
        wires = [connect(tmp_path) for _ in range(3)]
        for wire in wires:
            wire.sendall(b'{"do":"add","with":{"a":1}}\n')
            assert json.loads(wire.recv(1000)) == {"result": 2}
        with pytest.raises(HeadwaterError, match="the broker has 3 control connections already"):
            call(tmp_path, "add", a=1)
        for wire in wires:
            wire.close()
        _wait_for_room(tmp_path)


def _rest_of(wire: socket.socket) -> bytes:
    """All that comes until it is closed, in whatever way."""
    got = b""
    with suppress(ConnectionError):
        while data := wire.recv(1 << 20):
            got += data
    return got


def _wait_for_room(directory: Path) -> None:
    """Until a call is not turned away."""
    while True:
        try:
            assert call(directory, "add", a=1) == 2
            return
        except HeadwaterError as error:
            assert "control connections already" in str(error)


# The file


def test_the_socket_is_for_its_owner_only(data: Path) -> None:
    status = (data / NAME).stat()
    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o600


def test_a_leftover_is_replaced_and_its_own_is_removed(
    tmp_path: Path, loop_factory: LoopFactory
) -> None:
    leftover = socket.socket(socket.AF_UNIX)
    leftover.bind(str(tmp_path / NAME))
    leftover.close()
    with pytest.raises(NoBroker):
        call(tmp_path, "add", a=1)
    for _ in range(2):
        with serving(tmp_path, HANDLERS, loop_factory):
            assert call(tmp_path, "add", a=1) == 2
        assert not list(tmp_path.iterdir())


def test_the_socket_of_another_is_left_alone(tmp_path: Path, loop_factory: LoopFactory) -> None:
    with serving(tmp_path, HANDLERS, loop_factory):
        (tmp_path / NAME).unlink()
        other = socket.socket(socket.AF_UNIX)
        other.bind(str(tmp_path / NAME))
    assert (tmp_path / NAME).exists()
    other.close()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("mine")
    with (
        pytest.raises(
            HeadwaterError, match=r"^control\.sock in the data directory is not a socket"
        ),
        serving(tmp_path, HANDLERS),
    ):
        pass
    assert (tmp_path / NAME).read_text() == "mine"


@pytest.mark.parametrize("length", [90, 103, 104, 107, 108, 150, 1000])
def test_paths_of_any_length(tmp_path: Path, length: int, loop_factory: LoopFactory) -> None:
    directory = tmp_path
    missing = length - len(str(directory / NAME))
    while missing > 0:
        part = min(missing - 1, 200)
        directory, missing = directory / ("d" * part), missing - part - 1
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.get_loop()  # the first one of a process opens files that stay open
    gc.collect()  # what others have left open must not be closed meanwhile
    open_before = len(os.listdir("/proc/self/fd"))
    with serving(directory, HANDLERS, loop_factory):
        assert call(directory, "add", a=1) == 2
    assert not list(directory.iterdir())
    with pytest.raises(NoBroker):
        call(directory, "add", a=1)
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(Path("data"), HANDLERS):
        assert call(Path("data"), "add", a=1) == 2


# No broker, or no more


@pytest.mark.parametrize("long", ["", "d" * 150])
def test_no_broker(tmp_path: Path, long: str) -> None:
    directory = tmp_path / long / "data"
    sentence = (
        f"no broker is running with the data directory {directory} "
        f"(start it with: headwater serve --data {directory})"
    )
    for _ in range(2):
        with pytest.raises(NoBroker) as caught:
            call(directory, "add", a=1)
        assert str(caught.value) == sentence
        directory.mkdir(parents=True, exist_ok=True)


def test_a_broker_that_stops_says_so(tmp_path: Path, loop_factory: LoopFactory) -> None:
    entered, errors = threading.Event(), list[str]()

    async def wait() -> None:
        entered.set()
        await asyncio.sleep(60)

    def ask() -> None:
        try:
            call(tmp_path, "wait")
        except HeadwaterError as error:
            errors.append(str(error))

    with serving(tmp_path, {"wait": wait}, loop_factory):
        idle = connect(tmp_path)
        thread = threading.Thread(target=ask)
        thread.start()
        assert entered.wait(PATIENCE)
    thread.join(PATIENCE)
    assert errors[0] in ("the broker is stopping", "the broker has stopped before it answered")
    with idle, idle.makefile("rb") as lines:
        assert lines.read() in (b"", b'{"error":"the broker is stopping"}\n')


@pytest.mark.parametrize("answer", [b"", b'{"progress":{"done":1,"total":2}}\n{"resu'])
def test_a_broker_that_dies(tmp_path: Path, answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / NAME))
        listening.listen()

        def accept() -> None:
            wire, _ = listening.accept()
            wire.send(answer)
            wire.close()  # with a request that was not read, so that it is a reset

        thread = threading.Thread(target=accept)
        thread.start()
        with pytest.raises(HeadwaterError, match=r"^the broker has stopped before it answered$"):
            call(tmp_path, "add", a=1)
        thread.join(PATIENCE)


# Names of queues


NAMES = ["prism/shop/orders", "prism/shop/", "bmtp/42", "prism/42", "prism/crm/orders"]


@pytest.mark.parametrize(
    ("name", "queue"),
    [
        ("prism/shop/orders", "prism/shop/orders"),
        ("shop/orders", "prism/shop/orders"),
        ("shop/", "prism/shop/"),
        ("shop", "prism/shop/"),
        ("prism/shop/", "prism/shop/"),
        ("bmtp/42", "bmtp/42"),
    ],
)
def test_names_with_and_without_protocol(name: str, queue: str) -> None:
    assert find(name, NAMES) == queue


@pytest.mark.parametrize(
    ("name", "names", "sentence"),
    [
        ("42", NAMES, '"42" may be bmtp/42 or prism/42'),
        ("orders", ["b/x", "a/y"], 'there is no queue "orders"; there are a/y, b/x'),
        ("", ["a/y"], 'there is no queue ""; there are a/y'),
        ("orders", [], 'there is no queue "orders"; there are none yet'),
    ],
)
def test_names_that_are_none(name: str, names: list[str], sentence: str) -> None:
    with pytest.raises(HeadwaterError) as caught:
        find(name, names)
    assert str(caught.value) == sentence
