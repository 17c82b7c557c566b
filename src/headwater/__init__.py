"""Headwater: one broker for five publish/subscribe protocols, on one durable log."""

__version__ = "0.1.0"
