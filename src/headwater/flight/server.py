"""Arrow Flight's side of the service: requests as Flight has them, errors as Flight tells them."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import flight

from headwater.errors import HeadwaterError
from headwater.flight import calls, entrance, requests
from headwater.flight.calls import Call
from headwater.flight.failures import told, told_of_each
from headwater.flight.requests import parse
from headwater.rights import Rights
from headwater.tls import TlsFiles

if TYPE_CHECKING:
    from headwater.flight.service import FlightService


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Translates between Flight and the service."""

    def __init__(self, service: "FlightService", location: str, tls: Mapping[str, Any]) -> None:
        middleware = {entrance.NAME: entrance.Tokens(), calls.NAME: service.calls}
        super().__init__(location, middleware=middleware, **tls)
        self._entrance = service.entrance
        self._service = service
        self._actions: dict[str, tuple[type, Callable[[Any, Rights], dict[str, Any]]]] = {
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
        call = Call.of(context, len(ticket.ticket))
        with told("a read"):
            caller = self._entrance.caller_of(context)
            call.let_in()
            self._service.check_running()
            request = parse(requests.Read, ticket.ticket)
            schema, batches = self._service.reader.read(request, caller)
        return flight.GeneratorStream(schema, told_of_each("a read", call.sent(batches)))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        call = Call.of(context, len(descriptor.command or b""))
        with told("a write"):
            caller = self._entrance.caller_of(context)
            call.let_in()
            self._service.check_running()
            request = requests.parse_put(descriptor.command or b"")
            batches = call.received(reader)
            if isinstance(request, requests.Append):
                result = self._service.append(request, caller, batches)
            else:
                result = self._service.stage(request, caller, batches)
            writer.write(pa.py_buffer(json.dumps(result).encode()))

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        call = Call.of(context, len(action.type) + len(action.body))
        with told("an action"):
            rights = self._entrance.caller_of(context).rights
            call.let_in()
            self._service.check_running()
            if action.type not in self._actions:
                raise HeadwaterError(f"there is no action {action.type[:100]}")
            if len(action.body) > requests.MOST_BYTES:  # before it is copied
                raise HeadwaterError(f"a request has at most {requests.MOST_BYTES} bytes")
            kind, act = self._actions[action.type]
            result = act(parse(kind, action.body.to_pybytes()), rights)
        yield flight.Result(json.dumps(result).encode())

    def list_actions(self, context: Any) -> list[Any]:
        Call.of(context)
        with told("a list of actions"):
            self._entrance.caller_of(context)
        return [(name, kind.__doc__ or name) for name, (kind, _) in self._actions.items()]

    # What others ask every Flight server for. Without these, pyarrow answers with a traceback.

    def list_flights(self, context: Any, criteria: Any) -> Iterator[Any]:
        Call.of(context)
        raise _no("list of flights")

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        Call.of(context)
        raise _no("flight of that name")

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        Call.of(context)
        return flight.SchemaResult(requests.READ_SCHEMA)  # that of every read

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        Call.of(context)
        raise _no("exchange")


def _no(what: str) -> Exception:
    error: Exception = flight.FlightServerError(
        f"there is no {what}: ask with do_get, do_put and do_action, as docs/spark.md says"
    )
    return error


def server_tls(files: TlsFiles | None) -> dict[str, Any]:
    """What Flight has to be given. gRPC asks every client for a certificate, or none."""
    if files is None:
        return {}
    given: dict[str, Any] = {
        "tls_certificates": [(files.certificate.read_bytes(), files.key.read_bytes())]
    }
    if files.client_ca is not None and files.required:
        given |= {"verify_client": True, "root_certificates": files.client_ca.read_bytes()}
    return given
