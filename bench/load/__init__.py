"""What the load processes do. Importing it all lets them start without importing anything."""

from bench.load import acked, bulk, consume, hold, pairs, steady

__all__ = ["acked", "bulk", "consume", "hold", "pairs", "steady"]
