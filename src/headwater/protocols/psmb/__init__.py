"""PSMB. wire.py has the bytes, server.py and client.py the two sides."""

from functools import partial

from headwater.protocols.entry import Examples, Protocol
from headwater.protocols.psmb.settings import PsmbSettings
from headwater.protocols.recognition import begins

PROTOCOL = Protocol(
    name="psmb",
    title="PSMB",
    port=13880,
    colour="#2a8fc4",
    settings=PsmbSettings,
    service="headwater.protocols.psmb.server:PsmbService",
    client="headwater.protocols.psmb.asyncio_client:PsmbClient",
    recognise=partial(begins, magic=b"PSM"),
    demo="headwater.demo.parts:Meters",
    subscribes_to="a PCRE pattern",
    durable_subscriptions=True,
    examples=Examples(publish="headwater pub psmb://localhost/{topic} 21.5"),
)
