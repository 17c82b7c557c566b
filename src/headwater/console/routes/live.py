"""Streams of server-sent events."""

from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from headwater.actions import SUBSCRIBE
from headwater.console.access import Identity
from headwater.console.dependencies import (
    FAILURES,
    Known,
    Listing,
    TheBroker,
    TopicName,
    Viewer,
    access_of,
    check,
)
from headwater.console.events import EventStream
from headwater.console.live import page_events

router = APIRouter(responses=FAILURES, tags=["live"])

PageName = Literal["overview", "topics", "connections", "queues", "subscriptions", "pipelines"]
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
}


@router.get("/live", response_class=StreamingResponse, responses=_STREAM)
async def page(
    request: Request, who: Viewer, broker: TheBroker, page: PageName, listing: Listing
) -> EventStream:
    """A page again whenever it changes: the event `data` has the JSON of its GET."""
    parameters = {} if page == "overview" else listing
    return _stream(request, who, page_events(broker, page, parameters))


@router.get("/topics/{topic}/live", response_class=StreamingResponse, responses=_STREAM)
async def tail(
    request: Request,
    who: Known,
    topic: TopicName,
    filter: Annotated[str, Query(max_length=256, description="only what contains this")] = "",
    kind: Literal["topic", "pattern"] = "topic",
    pattern: Annotated[
        str | None, Query(max_length=1024, description="PCRE, instead of the topic")
    ] = None,
) -> EventStream:
    """Messages as they come: the event `rows` has `items` (at most 200 a second, payloads cut at
    4 KiB), how many `matched`, how many were `skipped`, and the `rate` of the topic."""
    wanted, sort = (topic, kind) if pattern is None else (pattern, "pattern")
    if sort == "topic":
        check(request, who, SUBSCRIBE, wanted)
    may_get = access_of(request).rights_of(who).subscribe.may
    return _stream(request, who, request.app.state.tails.events(wanted, sort, filter, may_get))


def _stream(request: Request, who: Identity, events: AsyncGenerator[str]) -> EventStream:
    address = request.client.host if request.client else ""
    may_read = partial(access_of(request).is_still, who, request)
    return EventStream(events, request.app.state.streams, address, may_read)
