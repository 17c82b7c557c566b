"""Prism Notify, on WebSocket.

names.py says what Prism's names are to the broker, signature.py and handshake.py who may connect,
service.py what a queue is, wire.py has the bytes, server.py and client.py the two sides.
"""

from headwater.protocols.entry import Examples, Protocol
from headwater.protocols.prism.settings import PrismSettings, check
from headwater.protocols.recognition import begins, requested_path

#: What a client may ask for.
PATHS = frozenset(("/api/notify", "/platform/notify", "/api/platform/notify"))


def _recognise(data: bytes) -> bool | None:
    is_request = begins(data, b"GET")
    if not is_request:
        return is_request
    path = requested_path(data)
    return None if path is None else path in PATHS


PROTOCOL = Protocol(
    name="prism",
    title="Prism Notify",
    port=8080,
    colour="#9467c6",
    settings=PrismSettings,
    check=check,
    service="headwater.protocols.prism.service:PrismService",
    client="headwater.protocols.prism.asyncio_client:PrismClient",
    recognise=_recognise,
    demo="headwater.demo.parts:Shop",
    subscribes_to="a queue's name or nothing",
    credentials=(
        "prism://app:secret@host or HEADWATER_PRISM_CLIENT_ID and HEADWATER_PRISM_CLIENT_SECRET"
    ),
    client_variables=("HEADWATER_PRISM_CLIENT_ID", "HEADWATER_PRISM_CLIENT_SECRET"),
    configures_clients=True,
    nameless_subscriptions=True,
    acknowledges=True,
    has_apps=True,
    app_example="headwater sub prism://{name}:{secret}@localhost/",
    examples=Examples(
        consume=("headwater app add shop", "headwater sub prism://shop:SECRET@localhost/orders")
    ),
)
