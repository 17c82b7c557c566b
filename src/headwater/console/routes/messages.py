"""Messages: looked at, and published. Large ones pass piece by piece, in both directions."""

import base64
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import ValidationError

from headwater.actions import HISTORY, PUBLISH
from headwater.console import models
from headwater.console.control_link import ControlLink
from headwater.console.dependencies import (
    FAILURES,
    MOMENT,
    Known,
    TheBroker,
    TopicName,
    check,
    shown,
)
from headwater.console.guard import Body
from headwater.console.problems import ApiError

router = APIRouter(responses=FAILURES, tags=["messages"])

#: The largest message that is shown as a whole, or taken.
MOST_BYTES = 16 << 20
#: What such a message is as JSON with base64, and some headers.
MOST_BODY = MOST_BYTES * 4 // 3 + (1 << 20)
#: How much of a message goes to the broker at once.
PIECE_BYTES = 512 * 1024

_TAKES_A_MESSAGE = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": models.NewMessage.model_json_schema()}},
    }
}

From = Annotated[int | None, Query(alias="from", ge=0, le=models.MOST)]
Place = Annotated[int | None, Query(ge=0, le=models.MOST)]


@router.get("/topics/{topic}/messages", response_model=models.Messages)
async def messages(
    request: Request,
    who: Known,
    broker: TheBroker,
    topic: TopicName,
    start: From = None,
    before: Place = None,
    at: Place = None,
    newest: bool = True,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
) -> Any:
    """From an offset or a time on, before an offset, or the newest; in the order of the log.
    Payloads are cut at 64 KiB, and there are fewer messages where they are large."""
    check(request, who, HISTORY, topic)
    if sum(each is not None for each in (start, before, at)) > 1:
        raise ApiError(400, "malformed", "give one of from, before and at")
    if not newest and start is None and before is None and at is None:
        start = 0
    found = await broker.recent(
        MOMENT / 2, "messages.read", topic=topic, start=start, before=before, at=at, limit=limit
    )
    return {**found, "items": [shown(dict(each)) for each in found["items"]]}


@router.get("/topics/{topic}/messages/{offset}", response_model=models.StoredMessage)
async def message(
    request: Request, who: Known, broker: TheBroker, topic: TopicName, offset: models.Offset
) -> Any:
    """One message as a whole."""
    check(request, who, HISTORY, topic)
    first = await _first(broker, topic, offset)
    if first["size"] > MOST_BYTES:
        raise ApiError(413, "too_large", f"this message has {first['size']} bytes")
    parts = [part async for part in _payload(broker, first)]
    return shown({**first, "payload": _base64(b"".join(parts))})


@router.get("/topics/{topic}/messages/{offset}/payload", response_class=Response)
async def payload(
    request: Request, who: Known, broker: TheBroker, topic: TopicName, offset: models.Offset
) -> Response:
    """The payload of one message, as it is."""
    check(request, who, HISTORY, topic)
    first = await _first(broker, topic, offset)
    return StreamingResponse(
        _payload(broker, first),
        media_type="application/octet-stream",
        headers={
            "Content-Length": str(first["size"]),
            "Content-Disposition": f'attachment; filename="{offset}.bin"',
        },
    )


@router.post(
    "/topics/{topic}/messages",
    response_model=models.Published,
    status_code=201,
    openapi_extra=_TAKES_A_MESSAGE,
)
async def publish(who: Known, request: Request, broker: TheBroker, topic: TopicName) -> Any:
    """Publish a message of at most 16 MiB, or what the broker allows: answered when durable."""
    check(request, who, PUBLISH, topic)
    message = await _new_message(request)
    content = _content(message)
    if len(content) > MOST_BYTES:
        raise ApiError(413, "too_large", f"at most {MOST_BYTES} bytes can be published here")
    for name, value in message.headers.items():
        _utf8(name), _utf8(value)
    upload, rest = await _upload(broker, content)
    return await broker.ask(
        "messages.publish",
        topic=topic,
        payload=_base64(rest),
        headers=message.headers,
        publisher=who.name,
        upload=upload,
    )


@router.post("/messages/{offset}/publish", response_model=models.Published, status_code=201)
async def publish_again(
    request: Request,
    who: Known,
    broker: TheBroker,
    offset: models.Offset,
    again: models.Again | None = None,
) -> Any:
    """Publish a message of the log again, to its own topic or another one."""
    topic = again.topic if again else None
    if topic is not None:
        _utf8(topic)
    source = (await broker.ask("messages.part", offset=offset, size=0))["topic"]
    check(request, who, HISTORY, source)
    check(request, who, PUBLISH, topic or source)
    return await broker.ask("messages.repeat", offset=offset, topic=topic, publisher=who.name)


async def _new_message(request: Request) -> models.NewMessage:
    """Read here and not by the framework, which would read a large body before it is known whose
    it is."""
    Body.of(request.scope).allow(MOST_BODY, request.app.state.large)
    try:
        return models.NewMessage.model_validate_json(await request.body())
    except ValidationError as error:
        problems = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        raise RequestValidationError(problems) from None


def _content(message: models.NewMessage) -> bytes:
    if (message.text is None) == (message.base64 is None):
        raise ApiError(400, "malformed", "give either text or base64")
    if message.base64 is None:
        return _utf8(message.text or "")
    try:
        return base64.b64decode(message.base64, validate=True)
    except ValueError:
        raise ApiError(400, "malformed", "content is not valid base64") from None


async def _upload(broker: ControlLink, content: bytes) -> tuple[int | None, bytes]:
    """Give the broker all but the last piece. Returns the upload, if there is one, and the rest."""
    upload = None
    done = 0
    while len(content) - done > PIECE_BYTES:
        piece = _base64(content[done : done + PIECE_BYTES])
        upload = (await broker.ask("messages.upload", payload=piece, upload=upload))["upload"]
        done += PIECE_BYTES
    return upload, content[done:]


async def _first(broker: ControlLink, topic: str, offset: int) -> dict[str, Any]:
    """The message with the first piece of its payload."""
    first: dict[str, Any] = await broker.ask("messages.part", offset=offset)
    if first["topic"] != topic:
        raise ApiError(404, "not_found", f"the message at offset {offset} is of another topic")
    return first


async def _payload(broker: ControlLink, first: dict[str, Any]) -> AsyncIterator[bytes]:
    """Piece by piece, so that no answer of the broker is large."""
    piece = base64.b64decode(first["payload"])
    yield piece
    done = len(piece)
    while done < first["size"]:
        part = await broker.ask("messages.part", offset=first["offset"], start=done)
        piece = base64.b64decode(part["payload"])
        done += len(piece)
        yield piece


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ApiError(400, "malformed", "a text is not UTF-8") from None
