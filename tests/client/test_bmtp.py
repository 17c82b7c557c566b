"""The BMTP client against a broker's session, with just enough of a broker behind it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from headwater.client import BmtpClient, Client, Message, Target, connect
from headwater.commands import Acknowledge, Close, Command, Consume, Publish, Respond
from headwater.errors import Code, Disconnected, HeadwaterError, Refusal
from headwater.message import Batch
from headwater.protocols.base import Terms
from headwater.protocols.bmtp import asyncio_client as client_module
from headwater.protocols.bmtp import codec as bmtp
from tests.e2e.process import PATIENCE, held_port


@dataclass
class Broker:
    """Hands every message to everyone who has subscribed to its channel, once."""

    settings: bmtp.BmtpSettings = field(default_factory=bmtp.BmtpSettings)
    port: int = 0
    refuse: Refusal | None = None
    holds_answers: bool = False
    published: list[Publish] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    most_open: int = 0
    connections: list["Connection"] = field(default_factory=list)

    def deliver(self, command: Publish) -> None:
        offset = sum(len(each.run) for each in self.published)
        self.published.append(command)
        for connection in self.connections:
            for consume in connection.consumed:
                if consume.queue.filters[0].matches(command.run.topic):
                    connection.offer(Batch(offset, 0, command.run), consume)


class Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.session = bmtp.BmtpService(broker.settings).session(Terms("peer"))
        self.consumed: list[Consume] = []
        self.waiting: list[bytes] = []
        self.backlog: list[tuple[Batch, Consume]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.broker.connections.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.broker.connections.remove(self)

    def data_received(self, data: bytes) -> None:
        for command in self.session.receive(data):
            self.handle(command)

    def handle(self, command: Command) -> None:
        if isinstance(command, Publish):
            if self.broker.refuse is not None:
                reaction = self.session.refuse(command, self.broker.refuse)
                assert isinstance(reaction, Respond)
                self.transport.write(reaction.answer)
                return
            self.broker.deliver(command)
            self.waiting.append(command.answer)
            self.broker.most_open = max(self.broker.most_open, len(b"".join(self.waiting)) // 2)
            if not self.broker.holds_answers:
                self.answer()
        elif isinstance(command, Consume):
            self.consumed.append(command)
            self.transport.write(command.answer)
        elif isinstance(command, Acknowledge):
            self.broker.acknowledged += command.offsets
            backlog, self.backlog = self.backlog, []
            for batch, consume in backlog:
                self.offer(batch, consume)
        elif isinstance(command, Close):
            self.transport.close()
        elif isinstance(command, Respond):
            self.transport.write(command.answer)

    def answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        self.transport.write(b"".join(waiting))

    def offer(self, batch: Batch, consume: Consume) -> None:
        room = self.session.room(batch.run)
        if room:
            now = batch.part(batch.offset, batch.offset + room)
            buffers, _ = self.session.send(now, consume.key, False)
            self.transport.writelines(buffers)
        if room < len(batch.run):
            self.backlog.append((batch.since(batch.offset + room), consume))


@asynccontextmanager
async def running(broker: Broker) -> AsyncIterator[Broker]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(broker), "127.0.0.1", broker.port)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
        for connection in list(broker.connections):
            connection.transport.abort()
        await server.wait_closed()


def played(check: Callable[[Broker], Awaitable[None]], broker: Broker | None = None) -> None:
    async def play() -> None:
        async with running(broker or Broker()) as started:
            await asyncio.wait_for(check(started), PATIENCE)

    asyncio.run(play())


def client_of(broker: Broker, qos: int = 1) -> BmtpClient:
    settings = broker.settings
    return BmtpClient(
        "127.0.0.1", broker.port, dialect=settings.dialect, envelope=settings.envelope, qos=qos
    )


async def take(client: Client, count: int) -> list[Message]:
    return [await anext(client) for _ in range(count)]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("envelope", ["json", "binary"])
@pytest.mark.parametrize("dialect", ["document", "bitmq"])
def test_publish_and_receive(dialect: bmtp.Dialect, envelope: bmtp.EnvelopeName, qos: int) -> None:
    async def check(broker: Broker) -> None:
        async with client_of(broker, qos) as one, client_of(broker, qos) as other:
            await one.subscribe("bmtp/42")
            await other.publish("42", b"1", b"", b'{"a": 1}', "é\n".encode())
            got = await take(one, 4)
            assert [message.payload for message in got] == [b"1", b"", b'{"a": 1}', "é\n".encode()]
            assert {message.topic for message in got} == {"bmtp/42"}

    played(check, Broker(bmtp.BmtpSettings(dialect, envelope)))


def test_more_messages_than_the_window_has_room_for() -> None:
    payloads = [b"%d" % number for number in range(2000)]

    async def check(broker: Broker) -> None:
        async with client_of(broker) as one, client_of(broker) as other:
            await one.subscribe("42")
            await asyncio.gather(
                other.publish("42", *payloads[:1500]), other.publish("42", *payloads[1500:])
            )
            got = {message.payload for message in await take(one, 2000)}
            assert got == set(payloads)
            await other.publish("42", b"the end")
            await take(one, 1)
        assert broker.most_open <= 255

    played(check)


def test_a_full_window_waits_for_acknowledgements() -> None:
    async def check(broker: Broker) -> None:
        async with client_of(broker) as client:
            publishing = asyncio.create_task(client.publish("42", *[b"x"] * 300))
            while sum(len(each.run) for each in broker.published) < 255:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
            assert sum(len(each.run) for each in broker.published) == 255
            # What is not acknowledged has no need for a window.
            await client.publish("42", b"unacknowledged", ack=False)
            broker.holds_answers = False
            broker.connections[0].answer()
            await publishing
            assert sum(len(each.run) for each in broker.published) == 301

    played(check, Broker(holds_answers=True))


def test_messages_are_acknowledged_when_the_application_is_done_with_them() -> None:
    async def check(broker: Broker) -> None:
        async with client_of(broker) as one, client_of(broker) as other:
            await one.subscribe("42")
            await other.publish("42", b"1", b"2", b"3")
            await take(one, 2)
            assert broker.acknowledged == []  # the first one, but not yet sent
            await take(one, 1)
        async with asyncio.timeout(PATIENCE):
            while len(broker.acknowledged) < 3:
                await asyncio.sleep(0.001)
        assert broker.acknowledged == [0, 1, 2]

    played(check)


def test_refusals_reach_the_caller() -> None:
    async def check(broker: Broker) -> None:
        broker.refuse = Refusal(Code.NO_SPACE, "the disk is full")
        async with client_of(broker) as client:
            for payloads in ([b"x"], [b"x"] * 1000):
                with pytest.raises(Refusal, match="more than the broker has room for"):
                    await client.publish("42", *payloads)
            broker.refuse = None
            await client.publish("42", *[b"x"] * 1000)
            with pytest.raises(Refusal, match="no BMTP channel"):
                await client.publish("sensors/a", b"x")
            with pytest.raises(Refusal, match="no BMTP channel"):
                await client.subscribe("sensors/+")

    played(check)


def test_headers_and_repeats() -> None:
    async def check(broker: Broker) -> None:
        async with client_of(broker, qos=2) as client:
            await client.publish("42", b"x", headers=(("producer_id", "dev-1"),), again=True)
            with pytest.raises(Refusal, match="no headers"):
                await client.publish("42", b"x", headers=(("kind", "a"),))
        (command,) = broker.published
        assert command.run.publisher == "dev-1"
        assert command.run.headers == (("qos", "2"), ("producer_id", '"dev-1"'))
        assert (bytes(command.once), command.again) == (b"\x01", True)

    played(check)


def test_configured_channels() -> None:
    async def check(broker: Broker) -> None:
        channels = {42: "sensors/a"}
        async with BmtpClient("127.0.0.1", broker.port, channels=channels) as client:
            await client.subscribe("sensors/a")
            await client.publish("sensors/a", b"x")
            assert (await take(client, 1))[0].topic == "sensors/a"

    played(check, Broker(bmtp.BmtpSettings(channels={42: "sensors/a"})))


def test_it_comes_back_after_the_broker_was_away() -> None:
    async def check() -> None:
        with held_port() as held:  # so that it is still free for the broker that comes back
            await come_back(held.getsockname()[1])

    async def come_back(port: int) -> None:
        broker = Broker(port=port, holds_answers=True)
        async with running(broker):
            client = client_of(broker)
            await client.open()
            await client.subscribe("42")
            publishing = asyncio.create_task(client.publish("42", *[b"x"] * 1000))
            await asyncio.sleep(0.05)
        with pytest.raises(Disconnected):
            await asyncio.wait_for(publishing, PATIENCE)
        again = Broker(port=broker.port)
        async with running(again), asyncio.timeout(PATIENCE):
            await client.publish("42", *[b"y"] * 1000)
            while (await anext(client)).payload != b"y":
                pass
            await client.close()

    asyncio.run(check())


def test_silence_is_broken_by_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PING_SECONDS", 0.01)
    seen: list[Command] = []

    async def check(broker: Broker) -> None:
        async with client_of(broker):
            (connection,) = broker.connections

            def handle(command: Command) -> None:
                seen.append(command)
                Connection.handle(connection, command)

            monkeypatch.setattr(connection, "handle", handle)
            while not seen:
                await asyncio.sleep(0.005)
        assert seen[0] == Respond(b"\xd0")

    played(check)


@pytest.mark.parametrize(
    ("answer", "error"), [(b"\x21", "this version"), (b"\x22", "not available"), (b"", "lost")]
)
def test_a_broker_that_does_not_want_us(answer: bytes, error: str) -> None:
    class Unwilling(Connection):
        def data_received(self, data: bytes) -> None:
            self.transport.write(answer)
            self.transport.close()

    async def check() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Unwilling(Broker()), "127.0.0.1")
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(HeadwaterError, match=error):
            await BmtpClient("127.0.0.1", port).open()
        server.close()

    asyncio.run(check())


def test_what_a_client_cannot_be() -> None:
    with pytest.raises(HeadwaterError, match="QoS"):
        BmtpClient(qos=3)
    with pytest.raises(HeadwaterError, match="no users"):
        connect("bmtp://bob@localhost/42")


@pytest.mark.parametrize(
    ("text", "port", "topic"),
    [
        ("bmtp://localhost/bmtp/42", None, "bmtp/42"),
        ("bmtp://localhost:7/42", 7, "42"),
        ("bmtp://localhost", None, ""),
    ],
)
def test_urls(text: str, port: int | None, topic: str) -> None:
    assert Target.parse(text) == Target("bmtp", "localhost", port, "", "", topic)
    assert isinstance(connect(text), BmtpClient)
