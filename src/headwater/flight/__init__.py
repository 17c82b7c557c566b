"""The log over Arrow Flight: for Spark and everyone else who reads and writes in columns.

`requests.py` says what is spoken, `server.py` hears and tells it, `service.py` does it, `stages.py`
keeps what is written until `appending.py` makes it visible, and `kept.py` knows if that is lost.
`calls.py` bounds how many calls there are, `watch.py` what their connections may hold (as
`kernel.py` and `balances.py` tell it), and `failures.py` says what becomes of errors.
"""

from headwater.flight.service import FlightService, FlightSettings
from headwater.flight.watch import WatchLimits

__all__ = ["FlightService", "FlightSettings", "WatchLimits"]
