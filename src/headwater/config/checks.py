"""What is wrong with a configuration although each of its values is right."""

from collections.abc import Iterator

from headwater.config.tables import Config
from headwater.protocols.entry import Complaint
from headwater.registry import REGISTRY


def complaints(config: Config) -> Iterator[Complaint]:
    for listener in config.listener.each:
        yield from _certificate(config, listener)
    for name, settings in config.protocols.items():
        yield from REGISTRY[name].check(settings, config.limits.topic_bytes)


def _certificate(config: Config, listener: str) -> Iterator[Complaint]:
    """Whether a listener with TLS has what it needs, and one without has nothing of it: there,
    someone believes to be safe."""
    address, own = config.address_of(listener), config.listener.each[listener]
    if address is None:
        return
    if address.secure:
        has_own = own.certificate or own.key
        table = f"listener.{listener}" if has_own else "tls"
        pair = zip(("certificate", "key"), config.key_pair_of(listener), strict=True)
        if missing := [f"{table}.{name}" for name, path in pair if path is None]:
            key = f"listen.{listener}"
            needs = f'{key} begins with "tls://", which needs a certificate and its key'
            yield key, f"{needs}: set {' and '.join(missing)}"
        return
    for name in ("certificate", "key", "client_ca"):
        if getattr(own, name) is not None:
            key = f"listener.{listener}.{name}"
            yield key, f'{key} has no effect unless listen.{listener} begins with "tls://"'
