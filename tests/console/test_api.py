"""The API of a real broker, over real HTTP."""

import asyncio
import base64
import json
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.admin.taps import ROWS_PER_SECOND
from headwater.client import PrismClient
from headwater.console.events import PATIENCE_SECONDS
from headwater.console.live import PAGE_SECONDS
from headwater.control import call
from tests.console.stand import MARK, client_of, console_of, events, publish, tail
from tests.e2e.process import APP, SECRET, BrokerProcess, eventually


def get(client: httpx.Client, path: str, **parameters: Any) -> Any:
    response = client.get(f"/api/v1/{path}", params=parameters)
    assert response.status_code == 200, response.text
    return response.json()


def test_overview(broker: BrokerProcess, client: httpx.Client) -> None:
    publish(broker, "over/view", b"one", b"two")
    for _ in eventually():
        seen = get(client, "overview")
        if seen["in"]["messages"] >= 2 and seen["topics"] >= 1:
            break
    assert seen["log"]["end"] >= 2
    assert {each["name"] for each in seen["protocols"]} >= {"psmb", "bpsp", "prism"}
    bpsp = next(each for each in seen["protocols"] if each["name"] == "bpsp")
    assert bpsp["in"]["messages"] >= 2
    assert bpsp["in"]["bytes"] > 6
    assert bpsp["accepted"] >= 1
    history = seen["history"]
    lengths = {len(history[name]) for name in ("times", "in", "out", "bytes_in", "bytes_out")}
    assert len(lengths) == 1


def test_a_part_of_a_message(broker: BrokerProcess) -> None:
    publish(broker, "a/part", b"abcdef")
    found = call(broker.data, "messages.read", topic="a/part")["items"][-1]
    for start, size, part in ((2, 3, b"cde"), (4, 100, b"ef"), (2**63 - 1, 5, b""), (-5, 1, b"a")):
        shown = call(broker.data, "messages.part", offset=found["offset"], start=start, size=size)
        assert base64.b64decode(shown["payload"]) == part


def test_topics_are_searched_sorted_and_paged(broker: BrokerProcess, client: httpx.Client) -> None:
    for number in range(5):
        publish(broker, f"paged/{number}", *[b"x"] * (number + 1))
    for _ in eventually():
        first = get(client, "topics", q="PAGED/", limit=2, sort="-count")
        if first["total"] == 5 and first["items"][0]["count"] == 5:
            break
    assert [(each["topic"], each["count"]) for each in first["items"]] == [
        ("paged/4", 5),
        ("paged/3", 4),
    ]
    second = get(client, "topics", q="paged/", limit=2, sort="-count", cursor=first["next"])
    third = get(client, "topics", q="paged/", limit=2, sort="-count", cursor=second["next"])
    assert [each["topic"] for each in second["items"] + third["items"]] == [
        "paged/2",
        "paged/1",
        "paged/0",
    ]
    assert third["next"] is None
    one = get(client, "topics/paged%2F3")
    assert one["count"] == 4 and one["subscribers"] == 0


def test_a_topic_knows_its_subscribers_but_not_tails(
    broker: BrokerProcess, client: httpx.Client
) -> None:
    publish(broker, "watched", b"1")
    wire = broker.subscriber("watch.*")
    with client_of(broker) as other, tail(broker, other, "/api/v1/topics/watched/live"):
        assert get(client, "topics/watched")["subscribers"] == 1
    wire.close()


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("topics?limit=0", 422, "invalid"),
        ("topics?sort=size", 400, "malformed"),
        ("topics?cursor=nonsense", 400, "malformed"),
        ("topics/no%2Fsuch", 404, "not_found"),
        ("topics/a/messages?from=1&before=2", 400, "malformed"),
        ("topics/a/messages/99999999", 404, "not_found"),
        ("queues/no%2Fsuch", 404, "not_found"),
        ("nothing", 404, "not_found"),
        ("no%2Fsuch/thing", 404, "not_found"),
        ("live?page=nothing", 422, "invalid"),
    ],
)
def test_errors_have_one_form(client: httpx.Client, path: str, status: int, code: str) -> None:
    response = client.get(f"/api/v1/{path}")
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["code"] == code and error["message"]


@pytest.fixture(scope="module")
def talk(broker: BrokerProcess) -> None:
    for number in range(10):
        publish(broker, "noise", b"x" * 10)
        publish(broker, "talk/a", json.dumps({"n": number}).encode(), kind="test")


@pytest.mark.usefixtures("talk")
class TestMessages:
    def read(self, client: httpx.Client, **parameters: Any) -> tuple[list[int], Any]:
        found = get(client, "topics/talk%2Fa/messages", **parameters)
        return [json.loads(each["text"])["n"] for each in found["items"]], found

    def test_the_newest(self, client: httpx.Client) -> None:
        numbers, found = self.read(client, limit=3)
        assert numbers == [7, 8, 9]
        last = found["items"][-1]
        assert last["json"] is True and last["truncated"] is False
        assert last["protocol"] == "bpsp" and last["publisher"] == "bob"
        assert last["headers"] == {"kind": "test"}

    def test_older_and_newer(self, client: httpx.Client) -> None:
        numbers, found = self.read(client, limit=4)
        seen = numbers
        while found["older"] is not None and len(seen) < 10:
            numbers, found = self.read(client, limit=4, before=found["older"])
            seen = numbers + seen
        assert seen == list(range(10))
        numbers, found = self.read(client, **{"from": 0}, limit=6)
        assert numbers == [0, 1, 2, 3, 4, 5]
        numbers, _ = self.read(client, **{"from": found["newer"]}, limit=6)
        assert numbers == [6, 7, 8, 9]

    def test_at_a_time(self, client: httpx.Client) -> None:
        _, found = self.read(client, limit=5)
        numbers, _ = self.read(client, at=found["items"][0]["timestamp"], limit=2)
        assert numbers == [5, 6]

    def test_one_as_a_whole(self, broker: BrokerProcess, client: httpx.Client) -> None:
        payload = bytes(range(256)) * 12_000  # 3 MB, in pieces
        publish(broker, "large", payload)
        (cut,) = get(client, "topics/large/messages")["items"]
        assert cut["truncated"] and cut["size"] == len(payload)
        assert base64.b64decode(cut["base64"]) == payload[: 64 * 1024]
        whole = get(client, f"topics/large/messages/{cut['offset']}")
        assert base64.b64decode(whole["base64"]) == payload and not whole["truncated"]
        raw = client.get(f"/api/v1/topics/large/messages/{cut['offset']}/payload")
        assert raw.content == payload
        other = client.get(f"/api/v1/topics/talk%2Fa/messages/{cut['offset']}")
        assert other.status_code == 404

    def test_large_ones_make_short_pages(self, broker: BrokerProcess, client: httpx.Client) -> None:
        for _ in range(40):
            publish(broker, "bulky", b"x" * 70_000)
        found = get(client, "topics/bulky/messages", limit=40)
        assert 1 < len(found["items"]) < 40
        before = get(client, "topics/bulky/messages", limit=40, before=found["older"])
        assert before["items"][-1]["offset"] < found["items"][0]["offset"]

    def test_publish(self, broker: BrokerProcess, client: httpx.Client) -> None:
        with subscriber(broker, "sent/.*") as take:
            sent = client.post(
                "/api/v1/topics/sent%2Fhere/messages",
                json={"text": "grüße", "headers": {"a": "b"}},
                headers=MARK,
            )
            assert sent.status_code == 201, sent.text
            assert take() == "grüße".encode()
            again = client.post(f"/api/v1/messages/{sent.json()['offset']}/publish", headers=MARK)
            assert again.status_code == 201
            assert take() == "grüße".encode()
            moved = client.post(
                f"/api/v1/messages/{sent.json()['offset']}/publish",
                json={"topic": "sent/there"},
                headers=MARK,
            )
            assert take() == "grüße".encode()
        found = get(client, f"topics/sent%2Fthere/messages/{moved.json()['offset']}")
        assert found["headers"] == {"a": "b"} and found["protocol"] == "console"

    @pytest.mark.parametrize(
        ("content", "status"),
        [
            ({}, 400),
            ({"text": "a", "base64": "YQ=="}, 400),
            ({"base64": "not base64"}, 400),
            ({"text": "a", "more": 1}, 422),
            ({"text": "a", "headers": {"": "x"}}, 400),
            ({"text": "\ud800"}, 422),
        ],
    )
    def test_what_cannot_be_published(
        self, client: httpx.Client, content: dict[str, Any], status: int
    ) -> None:
        headers = {**MARK, "Content-Type": "application/json"}
        body = json.dumps(content)
        response = client.post("/api/v1/topics/a/messages", content=body, headers=headers)
        assert response.status_code == status, response.text


class TestLargeMessages:
    MOST = 16 << 20

    def post(self, client: httpx.Client, topic: str, payload: bytes) -> httpx.Response:
        body = {"base64": base64.b64encode(payload).decode()}
        return client.post(f"/api/v1/topics/{topic}/messages", json=body, headers=MARK)

    @pytest.mark.parametrize("size", [512 * 1024, 512 * 1024 + 1, 3 << 20, MOST])
    def test_are_stored_as_a_whole(
        self, broker: BrokerProcess, client: httpx.Client, size: int
    ) -> None:
        payload = os.urandom(size)
        with subscriber(broker, "huge") as take:
            sent = self.post(client, "huge", payload)
            assert sent.status_code == 201, sent.text
            assert take() == payload
        raw = client.get(f"/api/v1/topics/huge/messages/{sent.json()['offset']}/payload")
        assert raw.content == payload

    def test_several_at_the_same_time(self, broker: BrokerProcess, client: httpx.Client) -> None:
        payloads = [bytes([number]) * (4 << 20) for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(lambda each: self.post(client, "many", each), payloads))
        assert [each.status_code for each in done] == [201] * 8
        for payload, each in zip(payloads, done, strict=True):
            raw = client.get(f"/api/v1/topics/many/messages/{each.json()['offset']}/payload")
            assert raw.content == payload

    @pytest.mark.parametrize("more", [1, 3 << 20])
    def test_have_a_limit(self, client: httpx.Client, more: int) -> None:
        response = self.post(client, "huge", bytes(self.MOST + more))
        assert response.status_code == 413, response.text
        assert response.json()["error"]["code"] == "too_large"
        assert client.get("/api/v1/me").status_code == 200

    def test_are_held_to_the_limit_of_the_broker(self, tmp_path: Path) -> None:
        settings = {"HEADWATER_LIMITS_MESSAGE_BYTES": "1MiB"}
        with console_of(tmp_path / "data", **settings) as small, client_of(small) as its_client:
            assert self.post(its_client, "t", bytes(1 << 20)).status_code == 201
            refused = self.post(its_client, "t", bytes((1 << 20) + 1))
            assert refused.status_code == 413
            assert refused.json()["error"]["message"] == "a message has at most 1048576 bytes here"


@contextmanager
def subscriber(broker: BrokerProcess, pattern: str) -> Iterator[Any]:
    wire = broker.subscriber(pattern)
    try:
        yield wire.message
    finally:
        wire.close()


def test_connections_are_listed_and_closed(broker: BrokerProcess, client: httpx.Client) -> None:
    wire = broker.subscriber("conn/.*", 777)
    for _ in eventually():  # it is about to read what is retained
        found = get(client, "connections", q="psmb/777")  # a port may have these digits too
        assert found["total"] == 1
        (mine,) = found["items"]
        if not mine["behind"]:
            break
    assert mine["protocol"] == "psmb" and mine["name"] == "psmb/777"
    assert mine["subscriptions"] == 1 and mine["in"]["bytes"] > 0 and mine["behind"] is False
    held = get(client, "subscriptions", q="psmb/777")["items"]
    assert [(each["filter"], each["durable"]) for each in held] == [("conn/.*", "psmb/777/conn/.*")]
    assert held[0]["connection"] == mine["id"]
    closed = client.delete(f"/api/v1/connections/{mine['id']}", headers=MARK)
    assert closed.status_code == 204
    assert b"BYE" in wire.rest()
    for _ in eventually():
        again = client.delete(f"/api/v1/connections/{mine['id']}", headers=MARK)
        if again.status_code == 404:
            break


def test_a_prism_client_shows_its_user_agent(broker: BrokerProcess, client: httpx.Client) -> None:
    async def main() -> Any:
        port = broker.ports["prism"]
        async with PrismClient("127.0.0.1", port, app=APP, secret=SECRET, user_agent="shop/2"):
            return await asyncio.to_thread(get, client, "connections", q=APP, sort="-since")

    (mine,) = asyncio.run(main())["items"]
    assert (mine["protocol"], mine["name"], mine["client"]) == ("prism", APP, "shop/2")


def test_queues_and_dead_letters(broker: BrokerProcess, client: httpx.Client) -> None:
    name = f"prism/{APP}/default" if _has(client, f"prism/{APP}/default") else None
    queues = get(client, "queues")["items"]
    name = name or queues[0]["name"]
    quoted = name.replace("/", "%2F")
    detail = get(client, f"queues/{quoted}")
    assert detail["name"] == name and detail["dead"] == 0
    assert detail["unmatched_bindings"] == []
    call(
        broker.data,
        "messages.publish",
        topic=detail["dead_topic"],
        payload=base64.b64encode(b"lost").decode(),
        headers={
            "dead-reason": "nobody took it",
            "dead-topic": "elsewhere",
            "dead-deliveries": "3",
        },
    )
    letters = get(client, f"queues/{quoted}/dead")
    assert letters["total"] == 1 and letters["next"] is None
    (letter,) = letters["items"]
    assert letter["text"] == "lost" and letter["reason"] == "nobody took it"
    assert letter["topic"] == "elsewhere" and letter["deliveries"] == 3
    back = client.post(f"/api/v1/queues/{quoted}/redrive", json={"limit": 5}, headers=MARK)
    assert back.json() == {"redriven": 1}
    assert get(client, "topics/elsewhere/messages")["items"][-1]["text"] == "lost"
    assert client.post(f"/api/v1/queues/{quoted}/purge", headers=MARK).json() == {"purged": 0}


def _has(client: httpx.Client, name: str) -> bool:
    return any(each["name"] == name for each in get(client, "queues")["items"])


def test_log_and_pipelines(broker: BrokerProcess, client: httpx.Client) -> None:
    for _ in eventually():  # what was published a moment ago may not be in a file yet
        log = get(client, "log")
        if log["pieces"][-1]["end"] == log["end"]:
            break
    assert log["retention"]["sync"] == "always"
    assert get(client, "pipelines") == {"items": [], "total": 0, "next": None}


class TestTails:
    def test_messages_as_they_come(self, broker: BrokerProcess, client: httpx.Client) -> None:
        with tail(broker, client, "/api/v1/topics/tail%2Fa/live") as stream:
            publish(broker, "tail/a", b'{"a":1}', b"\xff\x00")
            publish(broker, "tail/b", b"no")
            stream.wait(lambda got: len(stream.rows()) == 2)
        first, second = stream.rows()
        assert first["text"] == '{"a":1}' and first["json"] is True
        assert second["text"] is None and second["base64"] == "/wA="
        assert stream.sum("matched") == 2 and stream.sum("skipped") == 0

    def test_what_is_not_shown_is_counted(
        self, broker: BrokerProcess, client: httpx.Client
    ) -> None:
        with tail(broker, client, "/api/v1/topics/x/live?pattern=busy/.*") as stream:
            began = time.monotonic()
            publish(broker, "busy/a", *[b"%d" % number for number in range(5000)])
            stream.wait(lambda got: stream.sum("matched") == 5000)
            took = time.monotonic() - began
        assert 1 <= len(stream.rows()) <= ROWS_PER_SECOND * (1 + took)
        assert len(stream.rows()) + stream.sum("skipped") == 5000

    def test_a_filter(self, broker: BrokerProcess, client: httpx.Client) -> None:
        with tail(broker, client, "/api/v1/topics/sift/live?filter=Needle") as stream:
            publish(broker, "sift", *[b"hay"] * 50, b"a needle here", *[b"hay"] * 50)
            stream.wait(lambda got: stream.rows())
        assert [row["text"] for row in stream.rows()] == ["a needle here"]
        assert stream.sum("matched") == 1 and stream.sum("skipped") == 0

    def test_one_that_does_not_read_holds_up_nobody(
        self, broker: BrokerProcess, client: httpx.Client
    ) -> None:
        sleeper = socket.socket()
        sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sleeper.connect(("127.0.0.1", broker.ports["console"]))
        with tail(broker, client, "/api/v1/topics/flood/live") as stream:
            sleeper.sendall(b"GET /api/v1/topics/flood/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            for _ in range(20):
                publish(broker, "flood", *[b"x" * 4096] * 200)
            stream.wait(lambda got: stream.sum("matched") == 4000)
            began = time.monotonic()
            get(client, "overview")
            # Whoever waits for the one that does not read does so until that one is given up.
            assert time.monotonic() - began < PATIENCE_SECONDS / 2
        sleeper.close()

    def test_a_bad_pattern_is_told(self, client: httpx.Client) -> None:
        with events(client, "/api/v1/topics/x/live?pattern=(") as stream:
            stream.wait(lambda got: any(name == "problem" for name, _ in got))

    def test_taps_that_nobody_fetches_from_are_dropped(self, broker: BrokerProcess) -> None:
        tap = call(broker.data, "tap.open", topic="t")["tap"]
        assert call(broker.data, "tap.fetch", tap=tap)["items"] == []
        for _ in eventually():
            if call(broker.data, "metrics")["taps"] == 0:
                break


def test_a_live_page_comes_again_when_it_changes(
    broker: BrokerProcess, client: httpx.Client
) -> None:
    with events(client, "/api/v1/live?page=topics&q=fresh") as stream:
        stream.wait(lambda got: got)
        assert stream.got[0][1]["total"] == 0
        publish(broker, "fresh/one", b"x")
        stream.wait(lambda got: got[-1][1]["total"] == 1)
        began, seen = time.monotonic(), len(stream.got)
        time.sleep(1)
        came = len(stream.got) - seen
        assert came <= 2 + (time.monotonic() - began) / PAGE_SECONDS
