"""BPSP. wire.py has the bytes, server.py and client.py the two sides."""

from headwater.protocols.entry import Examples, Protocol


def _recognise(data: bytes) -> bool | None:
    """A frame begins with a length, which may be anything. None looks like the beginning of another
    protocol: its third byte is an opcode, and those are small."""
    return True if len(data) >= 3 else None


PROTOCOL = Protocol(
    name="bpsp",
    title="BPSP",
    port=29010,
    colour="#d08a1d",
    service="headwater.protocols.bpsp.server:BpspService",
    client="headwater.protocols.bpsp.asyncio_client:BpspClient",
    recognise=_recognise,
    broker_speaks_first=True,
    has_passwords=True,
    demo="headwater.demo.parts:Sensors",
    generality=2,
    subscribes_to="a pattern with + and *",
    examples=Examples(subscribe="headwater sub bpsp://localhost/sensors/+"),
)
