"""Guessing the secrets of apps, over sockets: it takes ever longer, and shuts out nobody who was
here before."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, closing
from functools import partial
from pathlib import Path

import pytest

from headwater.client.base import MESSAGE_BYTES
from headwater.control import call
from headwater.identity.attempts import FREE_ATTEMPTS, Attempts
from headwater.identity.gatekeeper import Gatekeeper
from headwater.protocols.base import Answered, ClientSession, Ended
from headwater.protocols.crystal import codec as crystal
from headwater.protocols.prism import codec as prism
from tests.client import test_crystal, test_prism
from tests.e2e.process import ALL_FIVE, APP, PATIENCE, SECRET, BrokerProcess, eventually
from tests.identity.test_attempts import Clock

HOME, ELSEWHERE, ATTACKER = "127.0.0.2", "127.0.0.3", "127.0.0.1"
WRONG = "a wrong secret of a test"

#: From an address, with an app and its secret; returns why it was refused, or nothing.
LogIn = Callable[[int, str, str, str], str]
Running = test_prism.Running | test_crystal.Running


def log_in_to_prism(port: int, address: str, app: str, secret: str) -> str:
    session = prism.PrismClientSession(MESSAGE_BYTES)
    target = prism.signed_target("/api/notify", app, secret, int(time.time()))
    with closing(socket.create_connection(("127.0.0.1", port), PATIENCE, (address, 0))) as wire:
        return asked(wire, session, session.request("localhost", target))


def log_in_to_crystal(port: int, address: str, app: str, secret: str) -> str:
    """There is no name of an app, only the secret."""
    session = crystal.CrystalClientSession(MESSAGE_BYTES)
    with closing(socket.create_connection(("127.0.0.1", port), PATIENCE, (address, 0))) as wire:
        assert not asked(wire, session, session.request("localhost", "/"))
        channels = {"game/chat": crystal.OUTGOING}
        return asked(wire, session, session.authenticate(("test", address), "me", secret, channels))


def asked(wire: socket.socket, session: ClientSession, request: bytes) -> str:
    wire.sendall(request)
    while True:
        for event in session.receive(wire.recv(4096)):
            if isinstance(event, Answered):
                return str(event.error or "")
            if isinstance(event, Ended):
                return event.reason


@pytest.mark.parametrize(
    ("log_in", "running"),
    [(log_in_to_prism, test_prism.running), (log_in_to_crystal, test_crystal.running)],
    ids=["prism", "crystal"],
)
def test_each_wrong_secret_doubles_the_wait(
    tmp_path: Path, log_in: LogIn, running: Callable[[Path], AbstractAsyncContextManager[Running]]
) -> None:
    async def check(attempt: Callable[[str, str], Awaitable[str]], gate: Gatekeeper) -> None:
        clock = Clock()
        gate.attempts = Attempts(clock)
        right, wrong = test_prism.SECRET, WRONG
        assert not await attempt(HOME, right)
        for _ in range(FREE_ATTEMPTS):
            assert await attempt(ATTACKER, wrong)
        # Where nobody has been before has to wait too, until somebody shows that they know it.
        assert await attempt(ELSEWHERE, right)
        for wait in (1, 2, 4, 8):
            failures, refused = gate.failures, gate.attempts.refused
            clock.now += wait - 0.5
            assert await attempt(ATTACKER, right)  # it is not even looked at
            assert (gate.failures, gate.attempts.refused) == (failures, refused + 1)
            assert not await attempt(HOME, right)
            assert not await attempt(ELSEWHERE, right)
            clock.now += 0.5
            assert await attempt(ATTACKER, wrong)
            assert gate.failures == failures + 1

    async def main() -> None:
        async with running(tmp_path) as made:
            gate = made.broker.gate
            assert isinstance(gate, Gatekeeper)

            async def attempt(address: str, secret: str) -> str:
                return await asyncio.to_thread(log_in, made.port, address, "shop", secret)

            await check(attempt, gate)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "log_in", "app", "told", "noted"),
    [
        ("prism", log_in_to_prism, APP, "too many attempts", f"app:{APP}"),
        ("prism", log_in_to_prism, "nobody", "too many attempts", "app:nobody"),
        ("crystal", log_in_to_crystal, APP, "wrong or missing secret", "secret:crystal"),
    ],
    ids=["wrong signature", "unknown app", "wrong secret"],
)
def test_who_guesses_is_locked_out_and_counted(
    tmp_path: Path, name: str, log_in: LogIn, app: str, told: str, noted: str
) -> None:
    with BrokerProcess(tmp_path / "data", toml=ALL_FIVE) as broker:
        attempt = partial(log_in, broker.ports[name])
        assert not attempt(HOME, APP, SECRET)
        refused = ""
        for _ in eventually():  # on a slow machine, the first waits may be over by the next attempt
            refused = attempt(ATTACKER, app, WRONG)
            access = call(broker.data, "metrics")["access"]
            if access["locked_out"]:
                break
        assert told in refused
        assert access["failed"] >= FREE_ATTEMPTS
        assert not attempt(HOME, APP, SECRET)
        broker.stop()
        assert f"{noted} could not log in from {ATTACKER}" in broker.log
