"""`format("headwater_contracts")`, found by Spark by its name: a definition may not register it."""

from headwater.pipeline.contracts.source import ContractRowSource as DefaultSource

__all__ = ["DefaultSource"]
