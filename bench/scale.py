"""How much of everything: one place for all the sizes of a run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    payload_bytes: int = 128
    seconds: float = 2.0  # of publishing, in every throughput measurement
    rounds: int = 3
    long_rounds: int = 2  # of what takes long, or has very many contestants
    fan_out: tuple[int, ...] = (1, 8, 64)
    fleets: tuple[int, ...] = (64, 1_000)  # publishers with one message at a time
    large: tuple[int, ...] = (16 * 1024, 1024 * 1024)  # bytes of a large message
    topics: int = 10_000  # that one publisher uses in turn
    growth: tuple[int, int] = (10, 100_000)  # topics, subscriptions, queues
    devices: int = 10_000  # with a message a second each
    groups: int = 100  # of devices, with a subscriber each
    steady_seconds: float = 5.0
    window: int = 4096  # messages that wait for their acknowledgement
    latency_rounds: int = 20_000
    idle_connections: int = 10_000
    settle_seconds: float = 3.0
    stall_seconds: float = 3.0
    stall_payload_bytes: int = 4096
    stall_bytes_per_second: int = 16_000_000
    read_bytes: int = 64_000_000  # of the log, for a reader over Flight
    probe_rate: int = 2000  # messages a second, next to the stalled subscriber
    subscriptions: tuple[int, int] = (100, 100_000)
    match_topics: int = 10_000
    log_bytes: int = 1_000_000_000
    waiting: tuple[int, int] = (1_000, 1_000_000)  # messages in a queue
    lost_consumers: int = 100
    held: int = 100  # messages that each of them has not acknowledged


FULL = Scale()

# Enough to see whether something is badly off; too short to quote.
QUICK = Scale(
    seconds=0.4,
    rounds=1,
    long_rounds=1,
    latency_rounds=2_000,
    devices=2_000,
    topics=2_000,
    growth=(10, 20_000),
    steady_seconds=2.0,
    idle_connections=1_000,
    settle_seconds=0.5,
    stall_seconds=1.5,
    read_bytes=16_000_000,
    match_topics=2_000,
    subscriptions=(100, 20_000),
    log_bytes=100_000_000,
    waiting=(1_000, 200_000),
    lost_consumers=20,
)

# For the tests: does the machinery work and count right?
TINY = Scale(
    seconds=0.1,
    rounds=1,
    long_rounds=1,
    fan_out=(1, 3),
    fleets=(4,),
    large=(16 * 1024, 128 * 1024),
    topics=50,
    growth=(10, 200),
    devices=20,
    groups=4,
    steady_seconds=0.5,
    window=256,
    latency_rounds=100,
    idle_connections=50,
    settle_seconds=0.1,
    stall_seconds=0.3,
    read_bytes=1_000_000,
    match_topics=100,
    subscriptions=(10, 200),
    log_bytes=2_000_000,
    waiting=(100, 2_000),
    lost_consumers=3,
    held=10,
)
