"""Counting acknowledgements."""

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
