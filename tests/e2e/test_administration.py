"""What an operator sees and does: apps, queues, dead letters, TLS, who is shut out at start-up."""

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from websockets.asyncio.client import connect as websocket
from websockets.exceptions import InvalidStatus

from headwater.client import BpspClient, PrismClient
from headwater.protocols.prism import codec as prism
from tests.e2e.process import ALL_FIVE, APP, PATIENCE, SECRET, BrokerProcess, eventually

TLS = Path(__file__).parent / "tls"


def headwater(*arguments: str, code: int = 0) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")}
    done = subprocess.run(
        [sys.executable, "-m", "headwater", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def said(broker: BrokerProcess, words: str) -> None:
    for _ in eventually():
        if words in broker.log:
            return


def test_an_app_that_is_added_while_the_broker_runs_can_connect(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as broker:
        said(broker, "prism refuses everyone")
        assert "headwater app add" in broker.log
        app = json.loads(headwater("app", "add", "shop", "--data", str(data), "--json"))
        assert headwater("app", "list", "--data", str(data)).count("shop") == 1

        async def publish() -> None:
            async with BpspClient("127.0.0.1", broker.ports["bpsp"]) as other:
                await other.publish("order/new", b"waits in the default queue")

        async def consume() -> None:
            async with PrismClient(
                "127.0.0.1",
                broker.ports["prism"],
                app=app["client_id"],
                secret=app["client_secret"],
            ) as client:
                await client.subscribe()
                message = await asyncio.wait_for(anext(client), PATIENCE)
                assert (message.topic, message.payload) == (
                    "order/new",
                    b"waits in the default queue",
                )

        asyncio.run(publish())
        assert broker.stop() == 0
        broker.start()  # the app is still there
        asyncio.run(consume())
        headwater("app", "remove", "shop", "--data", str(data))
        with pytest.raises(Exception, match=r"signature|client"):
            asyncio.run(consume())


def test_a_binding_that_matches_nothing_is_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    queue = f'[[prism.queues]]\napp = "{APP}"\nname = "orders"\nbindings = '
    bindings = '["order.*", "invoice.*", "payment.*"]\n'
    with BrokerProcess(data, toml=ALL_FIVE + queue + bindings) as broker:
        for topic in ("order.new", "invoice/new"):
            broker.publisher(topic).messages(b"1")
        assert broker.stop() == 0
        broker.errors.clear()
        broker.start()
        said(broker, "queue prism/shop/orders: its binding order/* matches no topic")
        said(broker, "order.new would match if its . and / changed places")
        said(broker, "queue prism/shop/orders: its binding payment/* matches no topic")
        assert "invoice/*" not in broker.log
        asked = ("queue", "show", "shop/orders", "--data", str(data))
        notes = json.loads(headwater(*asked, "--json"))["unmatched_bindings"]
        assert [(each["binding"], each["near"]) for each in notes] == [
            ("order/*", "order.new"),
            ("payment/*", None),
        ]
        assert all(each["note"] in headwater(*asked) for each in notes)


def test_crystal_is_off_without_a_secret_and_says_so(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        said(broker, "crystal is off")
        assert "secret_key" in broker.log
        assert "crystal" not in broker.ports
        # On the port for all, what is not Prism's is refused, not left waiting.
        wire = broker.wire("any")
        wire.send(b"GET /chat HTTP/1.1\r\n")
        assert wire.rest() == b""


def test_dead_letters_are_listed_redriven_and_purged(tmp_path: Path) -> None:
    data = tmp_path / "data"
    toml = f"[prism]\nack_seconds = 0.1\nmax_deliveries = 2\n{ALL_FIVE}"
    with BrokerProcess(data, toml=toml) as broker:
        client = PrismClient("127.0.0.1", broker.ports["prism"], app=APP, secret=SECRET)

        async def poison() -> None:
            await client.open()
            await client.subscribe()
            await client.publish("order/new", *[b"%d" % n for n in range(50)])
            while queue()["dead"] != 50:
                await asyncio.sleep(0.05)
            await client.close()

        def queue() -> dict[str, object]:
            (found,) = json.loads(headwater("queue", "list", "--json", "--data", str(data)))
            assert isinstance(found, dict)
            return found

        asyncio.run(poison())
        for _ in eventually():  # what is put back must not go to the one that has just left
            if queue()["consumers"] == 0:
                break
        assert queue()["name"] == f"prism/{APP}/default"
        assert (queue()["dead"], queue()["waiting"]) == (50, 0)
        shown = json.loads(
            headwater("queue", "show", f"{APP}/default", "--json", "--data", str(data))
        )
        assert shown["dead_topic"] == f"dead/{APP}/default"
        assert shown["dead_letters"][0]["topic"] == "order/new"
        assert shown["dead_letters"][0]["deliveries"] == 2
        name = f"prism/{APP}/default"
        headwater("queue", "redrive", name, "--limit", "20", "--yes", "--data", str(data))
        assert (queue()["dead"], queue()["waiting"]) == (30, 20)
        headwater("queue", "redrive", name, "--yes", "--data", str(data))
        assert (queue()["dead"], queue()["waiting"]) == (0, 50)
        assert "no queue" in headwater("queue", "show", "nothing", "--data", str(data), code=1)

        # From now on there is time to acknowledge.
        assert broker.stop() == 0
        broker.set(HEADWATER_PRISM_ACK_SECONDS="600")
        broker.start()

        async def consume() -> None:
            async with PrismClient(
                "127.0.0.1", broker.ports["prism"], app=APP, secret=SECRET
            ) as again:
                await again.subscribe()
                got = [(await asyncio.wait_for(anext(again), PATIENCE)) for _ in range(50)]
                assert [message.payload for message in got] == [b"%d" % n for n in range(50)]
                assert {message.topic for message in got} == {"order/new"}

        asyncio.run(consume())
        headwater("queue", "purge", name, "--yes", "--data", str(data))
        assert (queue()["dead"], queue()["waiting"]) == (0, 0)


def test_tls_and_the_secret_as_a_parameter(tmp_path: Path) -> None:
    """Inside TLS the client's secret replaces the signature; outside it is refused."""
    toml = f"""
[tls]
certificate = "{TLS / "certificate.pem"}"
key = "{TLS / "key.pem"}"
{ALL_FIVE}
"""
    target = f"/api/notify?client_id={APP}&client_secret={SECRET.replace(' ', '%20')}"
    listen = "tls://127.0.0.1:0"
    with BrokerProcess(
        tmp_path / "data", toml=toml, HEADWATER_LISTEN_PRISM=listen, HEADWATER_LISTEN_BMTP=listen
    ) as broker:
        context = ssl.create_default_context(cafile=TLS / "certificate.pem")

        async def check() -> None:
            secure = f"wss://localhost:{broker.ports['prism']}{target}"
            async with websocket(secure, ssl=context) as client:
                await client.send(b"\x02")
                await client.send(prism.publish("order.new", [b"hello"])[0])
                message = json.loads(await asyncio.wait_for(client.recv(), PATIENCE))
                assert (message["key"], message["body"]) == ("order.new", "hello")
                await client.send(b"\x03" + message["tag"].encode())
            with pytest.raises(InvalidStatus) as refused:
                async with websocket(f"ws://localhost:{broker.ports['any']}{target}"):
                    pass
            assert refused.value.response.status_code == 401

        asyncio.run(check())
        with (
            socket.create_connection(("127.0.0.1", broker.ports["bmtp"]), PATIENCE) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as wire,
        ):
            wire.sendall(b"\x11BMTP\xc0")
            received = b""
            deadline = time.monotonic() + PATIENCE
            while len(received) < 2 and time.monotonic() < deadline:
                received += wire.recv(10)
            assert received == b"\x20\xd0"


def test_a_certificate_that_cannot_be_read_is_told_at_start(tmp_path: Path) -> None:
    toml = f'[tls]\ncertificate = "{tmp_path}/none.pem"\nkey = "{tmp_path}/none.pem"\n'
    broker = BrokerProcess(tmp_path / "data", toml=toml)
    with pytest.raises(RuntimeError, match=r"none\.pem"):
        broker.start()
