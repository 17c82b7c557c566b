"""How much of everything."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    payload_bytes: int = 128
    rows: int = 5_000_000  # in the log and in the Parquet files
    rows_per_file: int = 500_000
    rounds: int = 3
    sink_rows: int = 5_000_000
    sink_rows_per_batch: int = 1_000_000  # of a stream
    latency_rate: int = 1_000  # messages a second
    latency_seconds: float = 30.0
    latency_warm_up: float = 10.0
    backlog: int = 10_000_000
    backlog_rate: int = 100_000  # messages a second that come on top
    read_bytes: int = 1_000_000_000  # taken over Flight, beside a protocol's clients
    probe_rate: int = 2_000
    probe_seconds: float = 8.0
    orders: int = 6_000_000  # through all tables of a pipeline
    lag_rate: int = 5_000
    lag_settle: float = 30.0  # before it is looked at
    lag_seconds: float = 30.0


FULL = Scale()

# Enough to see whether something is badly off; too short to quote.
QUICK = Scale(
    rows=1_000_000,
    rows_per_file=250_000,
    rounds=1,
    sink_rows=500_000,
    sink_rows_per_batch=250_000,
    latency_seconds=5.0,
    latency_warm_up=3.0,
    backlog=1_000_000,
    read_bytes=100_000_000,
    probe_seconds=2.0,
    orders=600_000,
    lag_settle=10.0,
    lag_seconds=10.0,
)

# For the tests: does it run and count right?
TINY = Scale(
    rows=20_000,
    rows_per_file=10_000,
    rounds=1,
    sink_rows=10_000,
    sink_rows_per_batch=5_000,
    latency_rate=200,
    latency_seconds=2.0,
    latency_warm_up=1.0,
    backlog=30_000,
    backlog_rate=2_000,
    read_bytes=1_000_000,
    probe_rate=200,
    probe_seconds=0.5,
    orders=2_000,
    lag_rate=200,
    lag_settle=2.0,
    lag_seconds=2.0,
)
