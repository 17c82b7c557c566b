"""A broker with clients of all five protocols, as a browser's tests and screenshots want it."""

import asyncio
import json
import math
import random
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pyarrow import flight

from headwater import control
from headwater.client import BmtpClient, BpspClient, CrystalClient, PrismClient, PsmbClient
from headwater.client.base import Client
from tests.e2e.process import ALL_FIVE, APP, PATIENCE, SECRET, BrokerProcess, eventually

Result = TypeVar("Result")

STATION, DASHBOARD, BRIDGE, SHOP = "weather-station-7", "dashboard", "chat-bridge", "ShopApi/2.1"
TEMPERATURE, HUMIDITY = "weather/north/temperature", "weather/north/humidity"
LOBBY, CHAT = "games/lobby/1", "chat/general"
ORDER = "order/new"
QUEUE = f"prism/{APP}/orders"
DEAD = 3
#: A queue whose messages die when a consumer does not acknowledge them at once.
SETTINGS = f"""
{ALL_FIVE}
[[prism.queues]]
app = "{APP}"
name = "orders"
bindings = ["order.#"]
ack_seconds = 0.1
max_deliveries = 2
"""
HOST = "127.0.0.1"


class Crowd:
    """Clients on an event loop of their own: the browser keeps the thread of the test."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._clients: list[Client] = []

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def join(self, client: Client) -> None:
        self.run(client.open())
        self._clients.append(client)

    def listen(self, client: Client, subscribing: Coroutine[Any, Any, None]) -> None:
        """Subscribe, and take what comes."""
        self.run(subscribing)
        self.start(_drain(client))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Something that goes on until all leave."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def leave(self) -> None:
        self.run(self._end_tasks())
        for client in self._clients:
            self.run(client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end_tasks(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class Scene:
    """The broker, its console's address, and one client for each protocol."""

    def __init__(self, data: Path, **settings: str) -> None:
        settings |= {"HEADWATER_LISTEN_CONSOLE": f"{HOST}:0", "HEADWATER_AUDIT_EVENTS": "changes"}
        self.broker = BrokerProcess(data, toml=SETTINGS, **settings)

    def __enter__(self) -> Self:
        self.broker.start()
        self.crowd = Crowd()
        ports = self.broker.ports
        self.host = f"{HOST}:{ports['console']}"
        self.url = f"http://{self.host}"
        self.station = BpspClient(HOST, ports["bpsp"], user=STATION)
        self.game = PsmbClient(HOST, ports["psmb"])
        self.bridge = CrystalClient(HOST, ports["crystal"], secret=SECRET, client_name=BRIDGE)
        self.device = BmtpClient(HOST, ports["bmtp"])
        self.shop = PrismClient(HOST, ports["prism"], app=APP, secret=SECRET, user_agent=SHOP)
        for client in (self.station, self.game, self.bridge, self.device, self.shop):
            self.crowd.join(client)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.crowd.leave()
        self.broker.stop()

    def publish(self, client: Client, topic: str, *payloads: bytes) -> None:
        self.crowd.run(client.publish(topic, *payloads))

    def fill(self) -> None:
        """Some messages in some topics, and someone who listens."""
        readings = [reading(n) for n in range(60)]
        self.publish(self.station, TEMPERATURE, *readings)
        self.publish(self.station, HUMIDITY, *[b"%d" % (40 + n % 9) for n in range(20)])
        self.publish(self.game, LOBBY, *[bytes([1, n, 0, 255, n]) for n in range(20)])
        self.publish(self.bridge, CHAT, b"hello from the other side")
        self.publish(self.device, "42", b"on")
        dashboard = BpspClient(HOST, self.broker.ports["bpsp"], user=DASHBOARD)
        self.crowd.join(dashboard)
        self.crowd.listen(dashboard, dashboard.subscribe("weather/*"))
        self.crowd.listen(self.game, self.game.subscribe("games/.*", 7))
        self.crowd.listen(self.bridge, self.bridge.subscribe(CHAT))

    def poison(self) -> None:
        """Orders that a consumer takes and never acknowledges, and no other dead letters."""
        control.call(self.broker.data, "queue.purge", name=QUEUE)
        bad = PrismClient(
            HOST, self.broker.ports["prism"], app=APP, secret=SECRET, user_agent="OrderWorker/1.4"
        )
        self.crowd.join(bad)
        self.crowd.run(bad.subscribe("orders"))
        orders = [b'{"order": %d, "total": null}' % (1000 + n) for n in range(DEAD)]
        self.publish(self.shop, ORDER, *orders)
        for _ in eventually():
            if self.dead() >= DEAD:
                break
        self.crowd.run(bad.close())

    def dead(self) -> int:
        """Counted by the broker itself, not by the console under test."""
        return int(control.call(self.broker.data, "queue.show", name=QUEUE)["dead"])

    def report_pipeline(self, error: str | None = None) -> None:
        """As `headwater pipeline run` does it, every second."""
        state = pipeline(error)
        body = json.dumps({"pipeline": state["name"], "state": state}).encode()
        with flight.connect(f"grpc://{HOST}:{self.broker.ports['flight']}") as client:
            list(client.do_action(flight.Action("report", body)))

    def hum(self) -> None:
        """Everyone publishes all the time, until the scene is left."""
        for client, topic, most in (
            (self.station, TEMPERATURE, 400),
            (self.game, LOBBY, 900),
            (self.bridge, CHAT, 60),
            (self.shop, "payment/settled", 150),
            (self.device, "42", 30),
        ):
            self.crowd.start(_hum(client, topic, most))


async def _drain(client: Client) -> None:
    async for _ in client:
        pass


async def _hum(client: Client, topic: str, most: int) -> None:
    """Up to so many messages a second, more and fewer in waves."""
    beat = 0
    while True:
        wave = 0.55 + 0.35 * math.sin(beat / 40 + most) + 0.1 * random.random()
        amount = max(1, int(most * wave / 4))
        await client.publish(topic, *[reading(beat + n) for n in range(amount)])
        beat += 1
        await asyncio.sleep(0.25)


def reading(number: int) -> bytes:
    temperature = 18 + 5 * math.sin(number / 9)
    return json.dumps({"celsius": round(temperature, 2), "station": 7, "n": number}).encode()


def pipeline(error: str | None) -> dict[str, Any]:
    now = time.time_ns() // 1000
    silver = "failed" if error else "running"
    return {
        "name": "shop",
        "mode": "continuous",
        "started": now - 900_000_000,
        "updated": now,
        "log": {"start": 0, "end": 120_000},
        "tables": [
            table("bronze", "running", 119_400, 1240.5, 119_400),
            table("silver_orders", silver, 48_210, 310.0, 96_000, error),
            table("traffic", "waiting", 1_280, 0.0, 119_400),
        ],
    }


def table(
    name: str, state: str, rows: int, rate: float, offset: int, error: str | None = None
) -> dict[str, Any]:
    progress = {"rows": rows, "rows_per_second": rate, "offset": offset, "lag": 120_000 - offset}
    last = {"batch": 41, "last_batch": time.time_ns() // 1000, "error": error}
    return {"name": name, "kind": "table", "query": "main", "state": state, **progress, **last}
