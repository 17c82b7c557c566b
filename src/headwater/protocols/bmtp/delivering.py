"""From batches to PUB packets.

The packets of a batch are built once, with stream id 0; each subscriber with QoS 1 or 2 gets them
with stream ids of its own. A message that is too large for a packet is skipped, never cut.
"""

import logging
from collections.abc import Sequence

from headwater.message import AT_MOST_ONCE, EXACTLY_ONCE, Batch, Run
from headwater.protocols.base import ServiceCounter
from headwater.protocols.bmtp.envelope import binary_bodies, json_bodies, producer_of
from headwater.protocols.bmtp.settings import Dialect, EnvelopeName
from headwater.protocols.bmtp.wire import (
    MOST_PACKET_BYTES,
    NAME,
    PUB,
    encode_pubs,
    header_size,
)

logger = logging.getLogger(__name__)

MOST_TOLD_TOPICS = 1000


class Skips:
    """Messages that were too large for a packet, of all connections of a broker."""

    def __init__(self) -> None:
        self.counter = ServiceCounter("bmtp_skipped_messages", "Messages too large for a packet.")
        self._told: set[str] = set()

    def add(self, topic: str, count: int) -> None:
        self.counter.count += count
        if topic not in self._told and len(self._told) < MOST_TOLD_TOPICS:
            self._told.add(topic)
            logger.warning("a message on %s is too large for BMTP and was skipped", topic)


def qos_of(run: Run) -> int:
    """As its publisher chose, if that was a BMTP client."""
    if run.protocol != NAME or not run.headers:
        return 1
    return {AT_MOST_ONCE: 0, EXACTLY_ONCE: 2}.get(run.headers[0], 1)


class Delivering:
    def __init__(self, dialect: Dialect, envelope: EnvelopeName, skips: Skips) -> None:
        self._skips = skips
        self._dialect: Dialect = dialect
        self._envelope: EnvelopeName = envelope
        self.skipped = 0

    def pubs(self, batch: Batch, channel: int, qos: int) -> tuple[bytes, Sequence[int]]:
        """The packets of a batch, and the offsets of the messages that they carry."""
        run = batch.run
        # The envelope tells the offset.
        variant = (NAME, self._envelope, self._dialect, batch.offset)
        packets = run.recall(variant)
        offsets = range(batch.offset, batch.end)
        if packets is not None:
            return packets, offsets
        first = PUB << 4 | qos
        header = header_size(first, self._dialect)
        bodies, sent = self._bodies(batch, channel, MOST_PACKET_BYTES - header)
        packets = encode_pubs(first, bodies, header)
        if len(sent) == len(offsets):
            return run.remember(variant, packets), offsets
        self.skipped += len(offsets) - len(sent)
        self._skips.add(run.topic, len(offsets) - len(sent))
        return packets, sent

    def _bodies(
        self, batch: Batch, channel: int, most: int
    ) -> tuple[Sequence[bytes], Sequence[int]]:
        """What goes into the packets, and the offset of each."""
        offsets: Sequence[int] = range(batch.offset, batch.end)
        # No envelope is shorter than what is in it: do not build what cannot fit.
        payloads, offsets = _fitting(list(batch.run.payloads), offsets, most)
        if self._envelope == "binary":
            return _fitting(binary_bodies(channel, payloads), offsets, most)
        run = batch.run
        producer = producer_of(run.headers) if run.protocol == NAME else ""
        if self._dialect == "document":
            producer = producer or "null"
        bodies = json_bodies(channel, payloads, offsets, batch.timestamp, producer)
        return _fitting(bodies, offsets, most)


def _fitting(
    bodies: list[bytes], offsets: Sequence[int], most: int
) -> tuple[list[bytes], Sequence[int]]:
    if max(map(len, bodies), default=0) <= most:
        return bodies, offsets
    both = [pair for pair in zip(bodies, offsets, strict=True) if len(pair[0]) <= most]
    return [body for body, _ in both], [offset for _, offset in both]
