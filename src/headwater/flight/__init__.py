"""The log over Arrow Flight: for Spark and everyone else who reads and writes in columns.

`requests.py` says what is spoken, `service.py` serves it, `stages.py` keeps what is written until
it is made visible.
"""

from headwater.flight.service import FlightService, FlightSettings

__all__ = ["FlightService", "FlightSettings"]
