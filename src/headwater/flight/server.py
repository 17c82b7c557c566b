"""Arrow Flight's side of the service: requests as Flight has them, errors as Flight tells them."""

import hmac
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import flight

from headwater.errors import Code, HeadwaterError, Refusal
from headwater.flight import requests
from headwater.flight.requests import parse

if TYPE_CHECKING:
    from headwater.flight.service import FlightService, FlightSettings


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Translates between Flight and the service."""

    def __init__(self, service: "FlightService", location: str, settings: "FlightSettings") -> None:
        tls = []
        if settings.certificate is not None and settings.key is not None:
            tls = [(settings.certificate.read_bytes(), settings.key.read_bytes())]
        middleware = {"token": _Gate(settings.token)} if settings.token else {}
        super().__init__(location, tls_certificates=tls, middleware=middleware)
        self._service = service
        self._actions: dict[str, tuple[type, Callable[[Any], dict[str, Any]]]] = {
            "log": (requests.Nothing, service.log),
            "offset_at": (requests.OffsetAt, service.offset_at),
            "topics": (requests.ListTopics, service.topics),
            "split": (requests.Split, service.split),
            "commit": (requests.Commit, service.commit),
            "abort": (requests.Abort, service.abort),
            "committed": (requests.CommittedBatch, service.committed),
            "report": (requests.SubmitReport, service.report),
        }

    def do_get(self, context: Any, ticket: Any) -> Any:
        with _told():
            self._service.check_running()
            schema, batches = self._service.read(parse(requests.Read, ticket.ticket))
        return flight.GeneratorStream(schema, _telling(batches))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with _told():
            self._service.check_running()
            content = json.loads(descriptor.command or b"{}")
            kind = content.pop("do", "") if isinstance(content, dict) else ""
            body = json.dumps(content).encode()
            batches = (chunk.data for chunk in reader)
            if kind == "append":
                result = self._service.append(parse(requests.Append, body), batches)
            elif kind == "stage":
                result = self._service.stage(parse(requests.Stage, body), batches)
            else:
                raise HeadwaterError('say {"do": "append"} or {"do": "stage"}')
            writer.write(pa.py_buffer(json.dumps(result).encode()))

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        with _told():
            self._service.check_running()
            if action.type not in self._actions:
                raise HeadwaterError(f"there is no action {action.type}")
            kind, act = self._actions[action.type]
            result = act(parse(kind, action.body.to_pybytes()))
        yield flight.Result(json.dumps(result).encode())

    def list_actions(self, context: Any) -> list[Any]:
        return [(name, kind.__doc__ or name) for name, (kind, _) in self._actions.items()]


class _Gate(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets in who has the token."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: Any) -> None:
        given = (headers.get("authorization") or [""])[0]
        if not hmac.compare_digest(given.encode(errors="replace"), self._expected):
            raise flight.FlightUnauthenticatedError(
                "this broker wants a token: set the option `token`"
            )


class _told:
    """Errors as Flight tells them."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, Refusal) and error.code in (Code.UNAVAILABLE, Code.NO_SPACE):
            raise flight.FlightUnavailableError(str(error)) from None
        if isinstance(error, OSError):  # of the log's files: clients may try again
            raise flight.FlightUnavailableError(error.strerror or str(error)) from None
        if isinstance(error, HeadwaterError):
            raise flight.FlightServerError(str(error)) from None
        # Arrow has errors that are no ValueError, for rows of a kind that it does not know.
        if isinstance(error, (ValueError, pa.ArrowException)):
            raise flight.FlightServerError(f"this request makes no sense: {error}") from None


def _telling(batches: Iterator[Any]) -> Iterator[Any]:
    with _told():
        yield from batches
