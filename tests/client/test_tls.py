"""URLs with an s: all clients inside TLS, whom they trust, and what they say when that fails."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.client import Target, Trust, connect
from headwater.errors import Disconnected, HeadwaterError
from headwater.identity.users import FILE as USERS_FILE
from headwater.identity.users import Users
from headwater.protocols import BUILT_IN
from headwater.registry import REGISTRY
from tests.cli.here import headwater_here
from tests.e2e.process import ALL_FIVE, APP, PATIENCE, SECRET, BrokerProcess
from tests.tls.certificates import Authority, Signed

#: Those who have to say who they are, and how.
USERS = {"prism": f"{APP}:{SECRET.replace(' ', '%20')}@", "crystal": f"{SECRET}@"}
TOPICS = {"bmtp": "bmtp/7", "prism": "order.new"}


class Place:
    """A broker whose listeners all speak TLS; PSMB's, which knows no passwords, wants certificates
    of clients."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        pair = self.authority.server()
        secure = {f"HEADWATER_LISTEN_{name.upper()}": "tls://127.0.0.1:0" for name in REGISTRY}
        data = directory / "data"
        data.mkdir(mode=0o700)
        Users(data / USERS_FILE).add("ann", "operator")
        self.broker = BrokerProcess(
            data,
            toml=ALL_FIVE,
            HEADWATER_TLS_CERTIFICATE=str(pair.certificate),
            HEADWATER_TLS_KEY=str(pair.key),
            HEADWATER_LISTENER_PSMB_CLIENT_CA=str(self.authority.certificate),
            HEADWATER_LISTENER_PSMB_ANONYMOUS="false",
            **secure,
        )
        self.ann = self.authority.client("ann")

    def url(self, protocol: str, topic: str = "") -> str:
        port = self.broker.ports[protocol]
        return f"{protocol}s://{USERS.get(protocol, '')}localhost:{port}/{topic}"

    def trust(self, own: Signed | None = None) -> Trust:
        ca = str(self.authority.certificate)
        return Trust(ca) if own is None else Trust(ca, str(own.certificate), str(own.key))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("place"))
    with made.broker:
        yield made


@pytest.mark.parametrize("protocol", [each.name for each in BUILT_IN])
def test_every_client_publishes_and_subscribes_inside_tls(protocol: str, place: Place) -> None:
    async def check() -> None:
        topic = TOPICS.get(protocol, "sensors")
        trust = place.trust(place.ann)
        async with (
            connect(place.url(protocol), trust=trust) as subscriber,
            connect(place.url(protocol), trust=trust) as publisher,
        ):
            assert subscriber.secure
            await subscriber.subscribe("" if protocol == "prism" else topic)
            await publisher.publish(topic, b"21.5")
            message = await asyncio.wait_for(anext(aiter(subscriber)), PATIENCE)
            assert message.payload == b"21.5"

    asyncio.run(check())


def test_who_signed_the_certificate_matters(place: Place, tmp_path: Path) -> None:
    async def check(trust: Trust) -> None:
        async with connect(place.url("bmtp"), trust=trust):
            pass

    with pytest.raises(Disconnected, match="its certificate is not accepted: unable to get"):
        asyncio.run(check(Trust()))
    with pytest.raises(Disconnected, match="its certificate is not accepted"):
        asyncio.run(check(Trust(str(Authority(tmp_path, "other").certificate))))


def test_who_needs_a_certificate_is_told(place: Place) -> None:
    async def check() -> None:
        async with connect(place.url("psmb"), trust=place.trust()) as client:
            await client.publish("a", b"1")

    with pytest.raises(Disconnected, match="CERTIFICATE_REQUIRED"):
        asyncio.run(check())


def test_plain_and_tls_do_not_mix(place: Place) -> None:
    async def check(url: str) -> None:
        async with connect(url, trust=place.trust()):
            pass

    with pytest.raises(Disconnected):
        asyncio.run(check(place.url("bmtp").replace("bmtps", "bmtp")))
    port = place.broker.ports["any"]  # without TLS
    with pytest.raises(Disconnected, match="cannot connect"):
        asyncio.run(check(f"bmtps://localhost:{port}"))


def test_commands(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ca, ann = str(place.authority.certificate), place.ann
    url, open_to_all = place.url("psmb", "orders"), place.url("bpsp", "a")
    assert headwater_here("pub", open_to_all, "1", "--ca", ca).returncode == 0
    wrong = headwater_here("pub", open_to_all, "1")
    assert wrong.returncode == 1 and "its certificate is not accepted" in wrong.stderr
    own = ("--cert", str(ann.certificate), "--key", str(ann.key))
    assert headwater_here("pub", url, "1", "--ca", ca, *own).returncode == 0
    monkeypatch.setenv("HEADWATER_CLIENT_CA", ca)
    assert headwater_here("pub", open_to_all, "1").returncode == 0
    monkeypatch.setenv("HEADWATER_CLIENT_CERTIFICATE", str(ann.certificate))
    monkeypatch.setenv("HEADWATER_CLIENT_KEY", str(ann.key))
    read = headwater_here("sub", url, "--from-start", "--count", "1")
    assert read.stdout == "orders 1\n"
    plain = headwater_here("pub", "psmb://localhost/a", "1", "--ca", ca)
    assert plain.returncode == 1 and "write psmbs:// for that" in plain.stderr


def test_urls_with_an_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_CLIENT_CA", "ca.pem")
    target = Target.parse("psmbs://host/a")
    assert (target.scheme, target.secure, target.trust) == ("psmb", True, Trust("ca.pem"))
    assert target.address == ("host", REGISTRY["psmb"].port)
    assert Target.parse("psmb://host/a").tls is None


@pytest.mark.parametrize(
    ("trust", "why"),
    [
        (Trust("none.pem"), "none.pem cannot be used: No such file"),
        (Trust(certificate="none.pem"), "the certificate none.pem cannot be used: No such file"),
        (Trust(key="key.pem"), "of no use without its certificate"),
    ],
)
def test_files_that_cannot_be_used_are_named(trust: Trust, why: str) -> None:
    with pytest.raises(HeadwaterError, match=why):
        connect("psmbs://localhost", trust=trust)


def test_a_client_without_tls_does_not_connect_in_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = REGISTRY["psmb"].client_class()
    monkeypatch.setattr(kind, "from_target", lambda target, settings: kind(*target.address))
    with pytest.raises(HeadwaterError, match="the client for PSMB has no TLS"):
        connect("psmbs://localhost")
