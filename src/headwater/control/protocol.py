"""What is spoken on the control socket: lines of JSON.

    → {"do": "queue.redrive", "with": {"name": "shop/orders"}}
    ← {"progress": {"done": 100, "total": 250}}         any number of these, or none
    ← {"result": {"redriven": 250}}                     or {"error": "there is no queue …"},
                                                        maybe with a "code" (errors.py: Code)

A connection carries any number of requests, one after the other. Between two of them it may be
silent for as long as it likes; a request that has begun has to end, and an answer to be read.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError

NAME = "control.sock"

#: The longest request.
MOST_BYTES = 1 << 20

#: The longest answer. Whoever asks for more has to ask for it in pieces.
MOST_ANSWER_BYTES = 16 << 20

#: Connections at the same time. The console has a few, and a command has one.
MOST_CONNECTIONS = 128

#: So long a request may take to arrive once it has begun, and an answer to be read.
UNFINISHED_SECONDS = 30.0

#: How much of how much is done.
Progress = Callable[[int, int], None]

# Linux takes 107 bytes for the path of a socket, others 103.
_MOST_PATH_BYTES = 103


@dataclass(frozen=True, slots=True)
class ControlRequest:
    do: str
    arguments: dict[str, Any]

    @classmethod
    def parse(cls, line: bytes) -> "ControlRequest":
        try:
            content = json.loads(line, parse_constant=_no_constant)
            if b"\\u" in line:  # half of a pair of these is text that nothing can be made of
                json.dumps(content, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            raise HeadwaterError("the request is not JSON") from None
        if not isinstance(content, dict) or not isinstance(content.get("do"), str):
            raise HeadwaterError('a request is an object with a text "do"')
        if unknown := content.keys() - {"do", "with"}:
            raise HeadwaterError(f'a request has "do" and "with", and no "{min(unknown)}"')
        arguments = content.get("with", {})
        if not isinstance(arguments, dict):
            raise HeadwaterError('"with" is an object')
        return cls(content["do"], arguments)

    def encode(self) -> bytes:
        return _line({"do": self.do, "with": self.arguments})


def _no_constant(name: str) -> None:
    """Python reads and writes NaN and Infinity, which are not JSON."""
    raise ValueError(name)


def progress(done: int, total: int) -> bytes:
    return _line({"progress": {"done": done, "total": total}})


def result(value: object) -> bytes:
    line = _line({"result": value})
    if len(line) > MOST_ANSWER_BYTES:
        raise HeadwaterError(f"the answer has more than {MOST_ANSWER_BYTES} bytes; ask for less")
    return line


def error(sentence: str, code: str | None = None) -> bytes:
    return _line({"error": sentence} if code is None else {"error": sentence, "code": code})


def _line(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


@contextmanager
def address(directory: Path) -> Iterator[str]:
    """The path of the socket, short enough to be one: it may be used inside the `with` only."""
    path = str(directory / NAME)
    if len(os.fsencode(path)) <= _MOST_PATH_BYTES:
        yield path
        return
    # Through the directory's file descriptor, any path is short.
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{NAME}"
    finally:
        os.close(descriptor)
