"""The protocols, one package for each.

The door of a package (`__init__.py`) is the protocol's entry in the registry. `codec.py` has the
names of its codec, which is pure: bytes in, commands out. `asyncio_client.py` is the one file that
knows of sockets.
"""

from headwater.protocols import bmtp, bpsp, crystal, prism, psmb

#: Those that come with Headwater, in the order in which they are shown.
BUILT_IN = (
    psmb.PROTOCOL,
    bmtp.PROTOCOL,
    prism.PROTOCOL,
    bpsp.PROTOCOL,
    crystal.PROTOCOL,
)
