"""What happens to connections, as lines of the log: with `--verbose` only, one for each event."""

import logging

logger = logging.getLogger(__name__)


def wanted() -> bool:
    return logger.isEnabledFor(logging.DEBUG)


def tell(event: str, connection: int, protocol: str, address: str, reason: str) -> None:
    about = {
        "event": event,
        "connection": connection,
        "protocol": protocol,
        "address": address,
        "reason": reason,
    }
    who, why = f"{protocol} {address}".lstrip(), f": {reason}" if reason else ""
    logger.debug("%s: %s%s", who, event, why, extra={"fields": about})
