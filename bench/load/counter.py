"""Counting acknowledgements, and deliveries where each counts."""

import socket
from dataclasses import dataclass

from bench.wire import Burst, Wire


@dataclass(slots=True)
class Counter:
    """Acknowledgements, by mark or by size; the size is learned from the first one."""

    wire: Wire
    size: int = 1
    units: int = 0

    def feed(self, data: bytes) -> None:
        if not data:
            raise ConnectionError("the broker closed a publisher's connection")
        if self.wire.refuses(data, self.units):
            raise ConnectionError(f"the broker refused a message: {data[:200]!r}")
        self.units += data.count(self.wire.ack_mark) if self.wire.ack_mark else len(data)

    def learn(self, link: socket.socket, burst: Burst) -> None:
        """Send one message, wait for its one acknowledgement."""
        link.sendall(burst.data)
        self.feed(link.recv(65536))
        self.size = 1 if self.wire.ack_mark else self.units
        self.units = 0

    @property
    def acks(self) -> int:
        return self.units // self.size


@dataclass(slots=True)
class Arrivals:
    """Deliveries to one connection, by size or by mark. A keep-alive in between leaves a few bytes
    of credit, never a whole frame."""

    wire: Wire
    frame: int
    credit: int = 0
    cut: bytes = b""

    def feed(self, data: bytes) -> int:
        """How many deliveries are whole with this."""
        if not data:
            raise ConnectionError("the broker closed a subscriber's connection")
        mark = self.wire.delivery_mark
        if not mark:
            found, self.credit = divmod(self.credit + len(data), self.frame)
            return found
        joined = self.cut + data
        self.cut = joined[-(len(mark) - 1) :]  # a mark may have come in two reads
        return joined.count(mark)
