"""The specification of a queue. `broker/queues/` has the queues themselves.

A queue remembers, across connections and restarts, which messages of its topics still have to be
acknowledged by a consumer.
"""

from dataclasses import dataclass

from headwater.filters import Filter

#: Everything below this level is a dead letter, and no queue takes it unless it asks by name.
DEAD = "dead"


@dataclass(frozen=True, slots=True)
class QueueSpec:
    name: str  # unique in the broker; begins with the protocol
    filters: tuple[Filter, ...]  # a message is taken once, however many of these match
    shared: bool = True  # each message goes to one consumer; otherwise to every one that is there
    from_start: bool = False  # a new queue begins with all that is retained, not with what comes
    prefetch: int | None = None  # how many a consumer holds unacknowledged that asks for no number
    ack_seconds: float | None = None  # how long it may hold them; None: as long as it is there
    max_deliveries: int | None = None  # after that many, a message becomes a dead letter
    dead_topic: str = ""
    #: How long a message waits while nobody consumes the queue, which is then a shared one. None:
    #: as long as the log has it.
    backlog_seconds: float | None = None
    #: How long the queue stays while nobody consumes it: one that has never given a message and is
    #: `from_start`, and any other. None for both: it was declared, and stays.
    empty_seconds: float | None = None
    unused_seconds: float | None = None
