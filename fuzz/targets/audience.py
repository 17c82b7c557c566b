"""Clients of all protocols that take whatever is published, as their own codecs read it."""

from collections.abc import Callable

from fuzz.stand import APP, APP_SECRET, NOW, SHARED_SECRET, Stand
from fuzz.targets.base import Violation
from headwater.protocols.base import ClientSession, Delivered, Ended, Pinged
from headwater.protocols.bmtp import codec as bmtp
from headwater.protocols.bmtp.wire import CHANNEL, HELLO, SUB
from headwater.protocols.bpsp import codec as bpsp
from headwater.protocols.crystal import codec as crystal
from headwater.protocols.crystal import crystal_pb2 as pb
from headwater.protocols.prism import codec as prism
from headwater.protocols.prism.wire import consume
from headwater.protocols.psmb import codec as psmb
from headwater.protocols.websocket.frames import BINARY, masked_frame

HOST, PATH = "localhost", "/api/notify"
MOST_BYTES = 1 << 24
NONCE = b"the sample nonce"
#: Topics that the wire vectors publish to, as far as a protocol has no wildcards.
CHANNELS = (("a", "b"), ("app", "chat"), ("", "a"), ("sensors", "a"))


def upgrade(target: str) -> bytes:
    """The request that opens a WebSocket."""
    return prism.PrismClientSession(MOST_BYTES, NONCE).request(HOST, target)


def signed(prefetch: int | None = None) -> bytes:
    return upgrade(prism.signed_target(PATH, APP, APP_SECRET, NOW, prefetch))


def authentication(name: str) -> bytes:
    """The frame that makes a client known. Its key is zero, so that mutations see what is in it."""
    request = pb.Authenticate(client_name=name, secret_key=SHARED_SECRET)
    request.client_id.namespace, request.client_id.name = "fuzz", name
    for namespace, channel in CHANNELS:
        request.channels.add(
            id=pb.NamespacedName(namespace=namespace, name=channel), direction=crystal.ALL
        )
    return masked_frame(BINARY, request.SerializeToString(), bytes(4))


#: What a client of each protocol says until the broker knows it.
HANDSHAKES: dict[str, bytes] = {
    psmb.NAME: psmb.PsmbClientSession.hello(),
    bmtp.NAME: HELLO,
    bpsp.NAME: bpsp.BpspClientSession(MOST_BYTES).connect(),
    prism.NAME: signed(),
    crystal.NAME: upgrade("/") + authentication("client"),
}

#: A client of each protocol, and what it says to get all that it can.
_LISTENERS: dict[str, tuple[Callable[[], ClientSession], bytes]] = {
    psmb.NAME: (
        lambda: psmb.PsmbClientSession(MOST_BYTES, ".*"),
        HANDSHAKES[psmb.NAME] + psmb.PsmbClientSession.subscribe(".*"),
    ),
    bmtp.NAME: (
        bmtp.BmtpClientSession,
        HELLO + b"".join(CHANNEL.pack(SUB << 4, number) for number in range(4)),
    ),
    bpsp.NAME: (
        lambda: bpsp.BpspClientSession(MOST_BYTES),
        HANDSHAKES[bpsp.NAME] + bpsp.BpspClientSession(MOST_BYTES).subscribe("#"),
    ),
    prism.NAME: (
        lambda: prism.PrismClientSession(MOST_BYTES, NONCE),
        signed(1000) + masked_frame(BINARY, consume(""), bytes(4)),
    ),
    crystal.NAME: (
        lambda: crystal.CrystalClientSession(MOST_BYTES, NONCE),
        upgrade("/") + authentication("listener"),
    ),
}


class Audience:
    """A client of each protocol. Where operators may close connections, they come again."""

    def __init__(self, stand: Stand, *, may_be_closed: bool = False) -> None:
        self._stand, self._may_be_closed = stand, may_be_closed
        self._members = [Member(stand, protocol) for protocol in _LISTENERS]

    def answer(self) -> None:
        """Send what they have to answer: they hear the broker in the middle of its work."""
        for number, member in enumerate(self._members):
            if not member.ended:
                member.answer()
            elif self._may_be_closed:
                self._members[number] = Member(self._stand, member.protocol)
            else:
                raise Violation(f"a subscriber of {member.protocol} was cut off: {member.ended}")

    def leave(self) -> None:
        for member in self._members:
            member.leave()


class Member:
    def __init__(self, stand: Stand, protocol: str) -> None:
        self.protocol = protocol
        #: Why the broker has ended the connection.
        self.ended = ""
        make, first_words = _LISTENERS[protocol]
        self._session = make()
        self._answers: list[bytes] = []
        self._connection, self._transport = stand.connect(protocol)
        for greeting in self._transport.written:
            self._hear(greeting)
        self._transport.reader = self._hear
        self._connection.data_received(first_words)

    def answer(self) -> None:
        if self._answers:
            answers, self._answers = self._answers, []
            self._connection.data_received(b"".join(answers))

    def leave(self) -> None:
        self._transport.close()

    def _hear(self, data: bytes) -> None:
        for event in self._session.receive(data):
            if isinstance(event, Delivered):
                self._answers += [receipt for receipt in event.receipts if receipt]
            elif isinstance(event, Pinged):
                self._answers.append(event.answer)
            elif isinstance(event, Ended):
                self.ended = event.reason or "without a word"
                self._transport.close()
