"""Headwater: one broker for five publish/subscribe protocols, on one durable log."""

from headwater import compiled

__version__ = "0.1.0"

compiled.prefer()
