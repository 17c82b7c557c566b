"""Errors as Flight tells them: a sentence, and nothing of what is inside the broker.

pyarrow sends the traceback of any other exception to the client, with the paths of the source.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import flight

from headwater.broker.quotas import OverQuota
from headwater.errors import Code, HeadwaterError, Refusal

logger = logging.getLogger(__name__)

_KINDS: dict[Code | None, Any] = {
    Code.UNAVAILABLE: flight.FlightUnavailableError,  # the client may try again
    Code.NO_SPACE: flight.FlightUnavailableError,
    Code.NOT_PERMITTED: flight.FlightUnauthorizedError,
}
_MOST_QUOTED = 300


@contextmanager
def told(what: str) -> Iterator[None]:
    """Around all that a request makes the broker do; `what` is for the log."""
    try:
        yield
    except flight.FlightError:
        raise
    except HeadwaterError as error:
        raise _kind_of(error)(str(error)) from None
    except pa.ArrowCancelled as error:  # the client went in the middle of its rows
        raise flight.FlightCancelledError(_first_line(error)) from None
    except pa.ArrowException as error:  # of what the client sent, as Arrow reads it
        logger.info("%s over Flight made no sense: %s", what, _first_line(error))
        raise flight.FlightServerError("the rows are not Arrow's") from None
    except OSError as error:
        if error.errno is None:  # Arrow's, of what the client sent
            logger.info("%s over Flight made no sense: %s", what, _first_line(error))
            raise flight.FlightServerError("the rows are not Arrow's") from None
        # Of the broker's files: the client may try again.
        logger.error("%s over Flight failed: %s", what, error)
        # Not its own words: Arrow's have paths in them.
        why = os.strerror(error.errno)
        raise flight.FlightUnavailableError(why) from None
    except Exception:
        logger.exception("%s over Flight failed", what)
        sentence = "internal error; the log of the broker says more"
        raise flight.FlightInternalError(sentence) from None


def told_of_each(what: str, batches: Iterator[Any]) -> Iterator[Any]:
    with told(what):
        yield from batches


def _kind_of(error: HeadwaterError) -> Any:
    # There is no room for this user before retention has made some: no use in trying soon.
    if not isinstance(error, Refusal) or isinstance(error, OverQuota):
        return flight.FlightServerError
    return _KINDS.get(error.code, flight.FlightServerError)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:_MOST_QUOTED]
