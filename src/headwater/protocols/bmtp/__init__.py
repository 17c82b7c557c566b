"""BMTP. wire.py has the packets, server.py and client.py the two sides."""

from headwater.protocols.bmtp.settings import BmtpSettings, check
from headwater.protocols.entry import Protocol


def _recognise(data: bytes) -> bool | None:
    """CONN: its type and the version in the first byte, then "BMTP"."""
    if (data and data[0] >> 4 != 1) or not b"BM".startswith(data[1:3]):
        return False
    return True if len(data) >= 3 else None


PROTOCOL = Protocol(
    name="bmtp",
    title="BMTP",
    port=1039,
    colour="#3d9c6c",
    settings=BmtpSettings,
    check=check,
    service="headwater.protocols.bmtp.server:BmtpService",
    client="headwater.protocols.bmtp.asyncio_client:BmtpClient",
    recognise=_recognise,
    demo="headwater.demo.parts:Chat",
    subscribes_to="a channel (42 or bmtp/42)",
    configures_clients=True,
    acknowledges=True,
)
