"""How the broker's own log looks: lines for people, or JSON for programs."""

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from time import monotonic
from typing import Any

FORMATS = ("text", "json")

# Of one kind of line, so many at once, and then so many in so many seconds.
BURST = 20
WINDOW_SECONDS = 10.0
MOST_CAUSES = 1000


def fields(**content: Any) -> dict[str, Any]:
    """For `extra`: members of the line in JSON."""
    return {"fields": content}


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        content: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            content["error"] = self.formatException(record.exc_info)
        return json.dumps(content, default=str)


class Sparing(logging.Filter):
    """Lets through a few lines of each cause, then counts the others and says how many.

    A cause is the place in the source that a line comes from, and the kind of event: what is said
    there may be about many connections.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}  # since, how many

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            return True
        event = getattr(record, "fields", {}).get("event", "")
        cause, now = (record.pathname, record.lineno, event), monotonic()
        with self._lock:
            since, count = self._seen.get(cause, (now, 0))
            if now - since > WINDOW_SECONDS:
                if count > BURST:
                    seconds = round(now - since)
                    record.msg = f"{record.msg} ({count - BURST} more like this in {seconds} s)"
                since, count = now, 0
            if len(self._seen) >= MOST_CAUSES:
                self._seen.clear()
            self._seen[cause] = (since, count + 1)
            return count < BURST


def set_up(form: str, level: int) -> None:
    """Have everything that is logged written to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    handler.addFilter(Sparing())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("asyncio").setLevel(max(level, logging.INFO))
