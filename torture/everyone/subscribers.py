"""Who takes what is published: each notes a message before it says that it has it."""

import asyncio
import contextlib
import threading
from collections.abc import Callable

import pyarrow as pa

from headwater.client import BmtpClient, BpspClient, Client, CrystalClient, PrismClient
from headwater.errors import HeadwaterError
from headwater.protocols.base import Delivered, Pinged
from headwater.protocols.psmb import codec as psmb
from tests.e2e.process import APP, SECRET, BrokerProcess, Wire
from tests.flight.client import Client as FlightClient
from torture.everyone.accounts import BMTP, DURABLE, PRISM, Accounts
from torture.everyone.publishers import AWAY_SECONDS, BMTP_TOPIC, HOST, PLAIN

#: Everything but what the broker publishes itself.
PATTERN = "(everyone|bmtp)/.*"
IDENTITY = 1
READ_SECONDS = 0.2
NOTED_SECONDS = 0.3

Listen = tuple[Callable[[BrokerProcess], Client], str]
#: Consumers of queues, and subscribers that get what comes while they are there.
LISTENERS: dict[str, Listen] = {
    PRISM: (
        lambda broker: PrismClient(HOST, broker.ports["prism"], app=APP, secret=SECRET),
        "",
    ),
    BMTP: (lambda broker: BmtpClient(HOST, broker.ports["bmtp"], qos=1), BMTP_TOPIC),
    "bpsp": (lambda broker: BpspClient(HOST, broker.ports["bpsp"]), "everyone/*"),
    "crystal": (
        lambda broker: CrystalClient(HOST, broker.ports["crystal"], secret=SECRET),
        PLAIN["crystal"][1],
    ),
}


async def listen(name: str, broker: BrokerProcess, accounts: Accounts) -> None:
    """Until it is cancelled."""
    connect, what = LISTENERS[name]
    loop = asyncio.get_running_loop()
    while True:
        client = connect(broker)
        with contextlib.suppress(HeadwaterError, OSError):
            try:
                await client.open()
                await client.subscribe(what)
                # A queue is on the disk a moment after it began (operations.md).
                loop.call_later(NOTED_SECONDS, accounts.subscribe, name)
                async for message in client:
                    accounts.receive(name, message.payload)
            finally:
                await client.close()
        await asyncio.sleep(AWAY_SECONDS)


def be_durable(broker: BrokerProcess, accounts: Accounts, stop: threading.Event) -> None:
    """A subscriber of PSMB that proves what it has read; in a thread of its own."""
    while not stop.is_set():
        with (
            contextlib.suppress(OSError, EOFError, AssertionError),
            contextlib.closing(broker.subscriber(PATTERN, IDENTITY)) as wire,
        ):
            wire.socket.settimeout(READ_SECONDS)
            _read(wire, accounts, stop)
        stop.wait(AWAY_SECONDS)


def _read(wire: Wire, accounts: Accounts, stop: threading.Event) -> None:
    session = psmb.PsmbClientSession(1 << 30)
    list(session.receive(b"OK\0\0\0\0\0OK\0"))  # already read from the socket
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            data = wire.socket.recv(1 << 20)
            if not data:
                return
            for event in session.receive(data):
                if isinstance(event, Delivered):
                    for payload in event.payloads:
                        accounts.receive(DURABLE, payload)
                elif isinstance(event, Pinged):
                    wire.send(event.answer)


async def read_columns(broker: BrokerProcess, accounts: Accounts, pause: float) -> None:
    """All that is in the log, over Flight, again and again."""
    while True:
        with contextlib.suppress(pa.ArrowException, OSError):
            for payload in await asyncio.to_thread(_columns, broker.ports["flight"]):
                accounts.receive("flight", payload)
        await asyncio.sleep(pause)


def _columns(port: int) -> list[bytes]:
    with contextlib.closing(FlightClient(port)) as client:
        log = client.act("log")
        start, end = max(log["start"], log["end"] - 1000), log["end"]
        found: list[bytes] = client.read(start=start, end=end, pattern=PATTERN)["value"].to_pylist()
        return found
