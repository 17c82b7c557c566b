"""How commands such as `headwater queue list` speak to a broker that runs: a socket in its data
directory, for those who may read the data anyway.

`protocol.py` says what is spoken, `server.py` is the broker's side, `client.py` the other one.
"""

from headwater.control.client import NoBroker, call
from headwater.control.names import find
from headwater.control.server import Control, Handler

__all__ = ["Control", "Handler", "NoBroker", "call", "find"]
