"""Any page answers in time, with 10,000 topics and 20,000 connections."""

import os
import resource
import socket
import statistics
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headwater.control import call
from headwater.protocols.psmb import codec as psmb
from tests.console.stand import client_of, console_of
from tests.e2e.process import BrokerProcess
from tests.flight.client import Client, rows

TOPICS = 10_000
# Each is an open file, here and in the broker; a system may allow somewhat fewer.
CONNECTIONS = min(20_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 500) // 8 * 8
# Of work, in the broker and its console: others may be using this machine.
MOST_SECONDS = 0.3
# The broker may be busy with a page for 5 ms in one piece. Others may be using this machine.
MOST_STALL = 0.02
# So often a page may be slow because this machine has something else to do.
TRIES = 40

PAGES = [
    "topics",
    "topics?sort=-count&limit=200",
    "topics?sort=-last&q=number/99",
    "topics/number%2F5000",
    "connections",
    "connections?sort=-in&limit=200",
    "connections?sort=lag",
    "connections?sort=-slowed",
    "connections?q=127.0.0.9",
    "subscriptions",
    "subscriptions?sort=-lag&limit=200",
    "subscriptions?q=idle/19",
    "overview",
    "queues",
    "log",
]


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    data = tmp_path_factory.mktemp("scale") / "data"
    settings = {"HEADWATER_PSMB_KEEPALIVE_SECONDS": "3600"}
    with console_of(data, **settings) as broker:
        flight = Client(broker.ports["flight"])
        batch = rows(*[(f"number/{number}", b"x" * 50) for number in range(TOPICS)])
        flight.put(batch, do="append", producer="test", sequence=1)
        flight.close()
        links = [connect(broker.ports["psmb"], number) for number in range(CONNECTIONS)]
        for number, link in enumerate(links):
            answer = b""
            while len(answer) < 10:
                answer += link.recv(64)
            assert answer == b"OK\0\0\0\0\0OK\0", (number, answer)
        yield broker
        for link in links:
            link.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(port: int, number: int) -> socket.socket:
    link = socket.socket()
    # Reset on close: thousands of ports in TIME_WAIT would be in the way of other tests.
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.bind((f"127.0.0.{2 + number % 8}", 0))
    link.connect(("127.0.0.1", port))
    link.sendall(
        psmb.PsmbClientSession.hello(2) + psmb.PsmbClientSession.subscribe(f"idle/{number}", None)
    )
    return link


@pytest.mark.timeout(180)
def test_every_page_answers_in_time(crowded: BrokerProcess) -> None:
    with client_of(crowded) as client:
        totals = client.get("/api/v1/overview").json()
        assert totals["connections"] == CONNECTIONS and totals["subscriptions"] == CONNECTIONS
        assert totals["topics"] == TOPICS
        costs = {path: best(crowded, client, path) for path in (*PAGES, "/metrics")}
        assert {path: took for path, took in costs.items() if took > MOST_SECONDS} == {}


def worked(pid: int) -> float:
    """Seconds that a process and its children have worked."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(worked(int(child)) for child in children)


def best(broker: BrokerProcess, client: httpx.Client, path: str) -> float:
    """The least work of some tries, until one is quick. None is answered from memory."""
    took: list[float] = []
    for number in range(TRIES):
        fresh = f"{path}{'&' if '?' in path else '?'}limit={50 + number}"
        url = path if path.startswith("/") else f"/api/v1/{path if 'limit' in path else fresh}"
        began = worked(broker.pid)
        response = client.get(url)
        took.append(worked(broker.pid) - began)
        assert response.status_code == 200, response.text
        if took[-1] <= MOST_SECONDS:
            break
    return min(took)


@pytest.mark.timeout(180)
def test_pages_reach_every_connection_once(crowded: BrokerProcess) -> None:
    for sort in ("", "address"):
        seen: set[int] = set()
        cursor, pages = None, 0
        while pages < 12:
            page = call(
                crowded.data, "connections.list", limit=200, sort=sort, cursor=cursor, q="127.0.0.9"
            )
            assert page["total"] == CONNECTIONS // 8
            numbers = {each["id"] for each in page["items"]}
            assert not numbers & seen
            seen |= numbers
            cursor, pages = page["next"], pages + 1
            if cursor is None:
                break
        assert len(seen) == min(12 * 200, CONNECTIONS // 8)


@pytest.mark.timeout(180)
def test_the_broker_is_never_busy_for_long(crowded: BrokerProcess) -> None:
    """While pages are made of all connections, a client gets its answers."""
    wire = crowded.publisher("probe")
    done = threading.Event()
    pages = []

    def ask() -> None:
        while not done.is_set():
            began = time.perf_counter()
            call(crowded.data, "connections.list", sort="-in_rate", limit=200)
            pages.append(time.perf_counter() - began)

    asking = threading.Thread(target=ask)
    asking.start()
    waits = []
    for _ in range(200):
        began = time.perf_counter()
        wire.send(b"NOP")
        wire.expect(b"NIL")
        waits.append(time.perf_counter() - began)
    done.set()
    asking.join()
    # Who comes while a page is made in one piece waits for half of it, and in one of ten cases for
    # nearly all of it. A busy machine makes both longer, the page and the wait.
    stall = max(MOST_STALL, statistics.median(pages) / 3)
    assert statistics.quantiles(waits, n=10)[-1] < stall
