"""What is wrong with a configuration although each of its values is right."""

from collections.abc import Iterator

from headwater.config.tables import SETTINGS, Config
from headwater.declare import value_of
from headwater.protocols.entry import Complaint
from headwater.registry import REGISTRY


def complaints(config: Config) -> Iterator[Complaint]:
    yield from _listeners_without_certificate(config)
    for name, settings in config.protocols.items():
        yield from REGISTRY[name].check(settings, config.limits.topic_bytes)


def _listeners_without_certificate(config: Config) -> Iterator[Complaint]:
    missing = [f"tls.{name}" for name in ("certificate", "key") if not getattr(config.tls, name)]
    for key in (key for key in SETTINGS if key.startswith("listen.")):
        address = value_of(config.listen, key.partition(".")[2])
        if address and address.secure and missing:
            needs = f'{key} begins with "tls://", which needs a certificate and its key'
            yield key, f"{needs}: set {' and '.join(missing)}"
