"""The clients of the protocols that come with Headwater, for those who read types."""

from headwater.protocols.bmtp.asyncio_client import BmtpClient
from headwater.protocols.bpsp.asyncio_client import BpspClient
from headwater.protocols.crystal.asyncio_client import CrystalClient
from headwater.protocols.prism.asyncio_client import PrismClient
from headwater.protocols.psmb.asyncio_client import PsmbClient

__all__ = ["BmtpClient", "BpspClient", "CrystalClient", "PrismClient", "PsmbClient"]
