"""The commands' side of the control socket. Synchronous: a command has nothing else to do."""

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from headwater.control import protocol
from headwater.control.protocol import ControlRequest, Progress
from headwater.errors import HeadwaterError

_CONNECT_SECONDS = 5.0


class NoBroker(HeadwaterError):
    """No broker is running with this data directory."""


def call(data_directory: Path, do: str, progress: Progress | None = None, **arguments: Any) -> Any:
    """Ask the broker that runs with a data directory for something, and return its result.

    Raises NoBroker if there is none, and if it declines, a HeadwaterError with its sentence.
    """
    with _connect(data_directory) as connection:
        for answer in _answers(connection, ControlRequest(do, arguments)):
            if "error" in answer:
                raise HeadwaterError(answer["error"])
            if "result" in answer:
                return answer["result"]
            if progress is not None:
                progress(answer["progress"]["done"], answer["progress"]["total"])
    raise HeadwaterError("the broker has stopped before it answered")


def _answers(connection: socket.socket, request: ControlRequest) -> Iterator[dict[str, Any]]:
    with suppress(ConnectionError), connection.makefile("rb") as lines:
        connection.sendall(request.encode())
        for line in lines:
            if line.endswith(b"\n"):
                yield json.loads(line)


def _connect(directory: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_CONNECT_SECONDS)
        with protocol.address(directory) as path:
            connection.connect(path)
        connection.settimeout(None)  # what was asked for may take long
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        connection.close()
        raise NoBroker(
            f"no broker is running with the data directory {directory} "
            f"(start it with: headwater serve --data {directory})"
        ) from None
    except OSError as error:
        connection.close()
        reason = error.strerror or "it does not answer"
        raise HeadwaterError(
            f"cannot reach the broker through {directory / protocol.NAME}: {reason}"
        ) from None
    return connection
