"""A small protocol of the tests, which Headwater knows nothing of until it is installed.

    the client says          and hears
    PUB topic payload        OK when it is durable
    SUB pattern              OK, and from then on: MSG topic payload

Anything else is answered by ERR and a sentence. Lines end in a newline.
"""

from headwater import units
from headwater.declare import setting, table
from headwater.protocols.entry import Protocol
from headwater.protocols.recognition import begins


@table
class LineSettings:
    longest_line: int = setting(
        units.size("16", "1MiB"), "64KiB", "The longest line that is accepted."
    )


def _recognise(data: bytes) -> bool | None:
    found = [begins(data, word) for word in (b"PUB ", b"SUB ")]
    return True if True in found else None if None in found else False


PROTOCOL = Protocol(
    name="line",
    title="Line",
    port=7000,
    colour="#123456",
    settings=LineSettings,
    service="headwater_line.codec:LineService",
    client="headwater_line.asyncio_client:LineClient",
    recognise=_recognise,
    subscribes_to="a pattern with + and *",
)
