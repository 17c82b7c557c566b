"""Lines of the log: their form, and how many of them."""

import json
import logging

import pytest

from headwater import logging_setup as logs


def record(message: str, *args: object, line: int = 1, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("headwater.test", logging.INFO, "file.py", line, message, args, None)
    for name, value in extra.items():
        setattr(made, name, value)
    return made


def test_a_line_of_json_has_its_fields() -> None:
    text = logs.JsonFormatter().format(
        record("closed: %s", "why", **logs.fields(connection=7, event="closed"))
    )
    content = json.loads(text)
    assert content["message"] == "closed: why" and content["level"] == "info"
    assert (content["connection"], content["event"]) == (7, "closed")


def test_lines_of_one_cause_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("headwater.logging_setup.monotonic", lambda: now)
    sparing = logs.Sparing()
    shown = sum(sparing.filter(record("client %d left", number)) for number in range(100))
    assert shown == logs.BURST
    assert sparing.filter(record("something else", line=2)), "another cause"
    other = record("client %d came", 1, **logs.fields(event="connected"))
    assert sparing.filter(other), "another event of the same place"
    now += logs.WINDOW_SECONDS + 1
    following = record("client %d left", 100)
    assert sparing.filter(following)
    assert following.getMessage() == "client 100 left (80 more like this in 11 s)"


def test_errors_are_never_left_out() -> None:
    sparing = logs.Sparing()
    for _ in range(100):
        made = record("bad")
        made.levelno = logging.ERROR
        assert sparing.filter(made)
