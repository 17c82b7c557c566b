"""Dead letters: list, redrive, delete."""

import base64
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from headwater.console import models
from headwater.console.dependencies import (
    FAILURES,
    MOMENT,
    Operator,
    QueueName,
    TheBroker,
    Viewer,
    access_of,
    by,
    text_of,
)
from headwater.console.problems import ApiError

router = APIRouter(responses=FAILURES, tags=["queues"])


@router.get("/queues/{name}/dead", response_model=models.Page[models.DeadLetter])
async def dead(
    request: Request,
    who: Viewer,
    broker: TheBroker,
    name: QueueName,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
    cursor: Annotated[str | None, Query(max_length=20)] = None,
) -> Any:
    """Dead letters, the oldest first. Viewers do not see their contents."""
    if cursor is not None and not (cursor.isascii() and cursor.isdigit()):
        raise ApiError(400, "malformed", "the cursor does not belong to this list")
    after = -1 if cursor is None else min(int(cursor), models.MOST)
    found = await broker.recent(MOMENT, "queue.dead", name=name, after=after, limit=limit)
    may_read = access_of(request).rights_of(who).history.may
    items = [_letter(dict(each), may_read(each["topic"])) for each in found["items"]]
    following = None if found["next"] is None else str(found["next"])
    return {"items": items, "total": found["total"], "next": following}


@router.post("/queues/{name}/redrive", response_model=models.Redriven)
async def redrive(
    who: Operator, broker: TheBroker, name: QueueName, redrive: models.RedriveRequest | None = None
) -> Any:
    """Publish dead letters to their original topics, the oldest first; all of them, or so many."""
    limit = redrive.limit if redrive else None
    return await broker.ask("queue.redrive", timeout=None, name=name, limit=limit, by=by(who))


@router.post("/queues/{name}/purge", response_model=models.Purged)
async def purge(who: Operator, broker: TheBroker, name: QueueName) -> Any:
    """Delete the dead letters of a queue. The log keeps the messages until retention drops them."""
    return await broker.ask("queue.purge", timeout=None, name=name, by=by(who))


def _letter(letter: dict[str, Any], readable: bool) -> dict[str, Any]:
    payload = base64.b64decode(letter.pop("payload"))
    text = text_of(payload, len(payload) < letter["size"]) if readable else None
    return {**letter, "text": text}
