"""The control socket: a real one, with everything behind it that an operator can ask for."""

import asyncio
import json
import zlib
from pathlib import Path

from fuzz import branches
from fuzz.stand import Stand
from fuzz.targets.audience import Audience
from fuzz.targets.base import Target, Violation
from headwater.control import protocol

#: An answer that takes longer will never come.
PATIENCE_SECONDS = 30.0

#: What each command may be given.
REQUESTS: dict[str, dict[str, object]] = {
    "app.add": {"name": "shop"},
    "app.list": {},
    "app.remove": {"name": "shop"},
    "connections.list": {"limit": 10, "sort": "-id", "cursor": None, "q": "bpsp"},
    "connections.show": {"id": 1},
    "connections.close": {"id": 99},
    "subscriptions.list": {"limit": 1, "sort": "", "q": "#"},
    "messages.read": {"topic": "a/b", "kind": "topic", "start": 0, "limit": 5},
    "messages.part": {"offset": 0, "start": 0, "size": 10},
    "messages.upload": {"payload": "YWJj", "upload": None},
    "messages.publish": {
        "topic": "a/b",
        "payload": "YWJj",
        "headers": {"k": "v"},
        "publisher": "me",
    },
    "messages.repeat": {"offset": 1, "topic": "a/c"},
    "tap.open": {"topic": "a/.*", "kind": "pattern", "text": "x"},
    "tap.fetch": {"tap": 1},
    "tap.close": {"tap": 1},
    "overview": {},
    "log.show": {},
    "metrics": {},
    "pipelines.list": {},
    "queue.list": {"count_seconds": 0.01},
    "queue.show": {"name": "prism/fuzz/default"},
    "queue.redrive": {"name": "bmtp/1", "limit": 1},
    "queue.purge": {"name": "fuzz/default"},
    "queue.dead": {"name": "fuzz/default", "after": -1, "limit": 2},
    "queues.list": {"limit": 2, "sort": "name", "cursor": None, "q": ""},
    "topics.list": {"limit": 2, "sort": "-count", "cursor": "WyJhIiwgMV0=", "q": "a"},
    "topics.show": {"topic": "a/b"},
}


class ControlTarget(Target):
    name = "control"
    has_json = True

    def __init__(self) -> None:
        self._stand: Stand | None = None
        self._audience: Audience | None = None

    def seeds(self) -> list[bytes]:
        lines = [
            json.dumps({"do": do, "with": arguments}).encode() + b"\n"
            for do, arguments in REQUESTS.items()
        ]
        return [*lines, b"".join(lines[:4]), b"[]\n", b'{"do": 1}\n', lines[0][:-1]]

    def words(self) -> list[bytes]:
        return [*branches.words("headwater.admin", "headwater.control"), *JSON_WORDS]

    def finished(self, data: bytes) -> bytes:
        """An unfinished line is no request."""
        return data if zlib.crc32(data) % 8 == 0 else data + b"\n"

    async def open(self, directory: Path) -> None:
        self._stand = await Stand.start(directory, lambda session: session)
        self._audience = Audience(self._stand, may_be_closed=True)
        for data in self.seeds():
            if b"messages.publish" in data:
                await self.run(data)

    async def close(self) -> None:
        assert self._stand is not None and self._audience is not None
        self._audience.leave()
        await self._stand.stop()

    async def run(self, data: bytes) -> None:
        assert self._stand is not None and self._audience is not None
        with protocol.address(self._stand.data) as path:
            reader, writer = await asyncio.open_unix_connection(path, limit=1 << 25)
        try:
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(PATIENCE_SECONDS):
                answers = await reader.read()
        except TimeoutError:
            raise Violation("there is no answer") from None
        finally:
            writer.close()
        self._audience.answer()
        check_answers(answers, data.count(b"\n"))


def check_answers(answers: bytes, requests: int) -> None:
    """One for each request, behind any number of reports of progress."""
    found = 0
    for line in answers.splitlines():
        answer = json.loads(line)
        kind = next(iter(answer))
        branches.outcome("control", kind, answer.get("code"))
        found += kind != "progress"
    if found != requests:
        raise Violation(f"{found} answers to {requests} requests")


#: What JSON is made of, and what is at its edges.
JSON_WORDS = (
    *(b"null", b"true", b"false", b"NaN", b"Infinity", b"-1", b"1e999", b"0.5", b"[]", b"{}"),
    *(b'""', b'"\\ud800"', b'"\\u0000"', b'":', b",", b"[[[[", b'{"a":' * 5, b"9" * 25),
    *(b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809", b"2147483648"),
)
