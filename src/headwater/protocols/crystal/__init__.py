"""CrystalConnector, on WebSocket. crystal.proto has its messages, wire.py the bytes of those that
are many, names.py what a channel is called elsewhere, server.py and client.py the two sides."""

from functools import partial

from headwater.protocols.crystal.settings import CrystalSettings
from headwater.protocols.entry import Protocol
from headwater.protocols.recognition import begins

#: What a client does with a channel; crystal.proto has the same numbers.
NONE, INCOMING, OUTGOING, ALL = range(4)

PROTOCOL = Protocol(
    name="crystal",
    title="CrystalConnector",
    port=33927,
    colour="#cf5b7f",
    settings=CrystalSettings,
    service="headwater.protocols.crystal.service:CrystalService",
    client="headwater.protocols.crystal.asyncio_client:CrystalClient",
    recognise=partial(begins, magic=b"GET"),
    demo="headwater.demo.parts:Game",
    generality=1,
    subscribes_to="a topic",
    credentials="crystal://secret@host or HEADWATER_CRYSTAL_SECRET_KEY",
    configures_clients=True,
    has_apps=True,
    app_example="headwater sub crystal://{secret}@localhost/lobby/chat",
)
