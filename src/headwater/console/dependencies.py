"""What the routes share: who asks, the broker, the parameters of lists, and payloads as text."""

import base64
import json
import logging
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request

from headwater.console.access import AccessControl, Identity
from headwater.console.control_link import ControlLink
from headwater.console.guard import SAFE, name_of
from headwater.console.models import Failure
from headwater.console.problems import ApiError
from headwater.identity.users import Role
from headwater.logging_setup import fields

logger = logging.getLogger(__name__)

#: How old an answer that many pages share may be.
MOMENT = 1.0
#: The longest text that is looked at whether it is JSON.
MOST_JSON = 64 * 1024

#: What every route may answer besides.
FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": Failure} for status in (400, 401, 403, 404, 409, 413, 421, 422, 429, 503, 507)
}


# What is not `async` here, the framework would run in a thread: slower, and beside others who look
# at the same sessions.


async def _the_broker(request: Request) -> ControlLink:
    broker: ControlLink = request.app.state.broker
    return broker


async def _the_access(request: Request) -> AccessControl:
    return access_of(request)


def access_of(request: Request) -> AccessControl:
    access: AccessControl = request.app.state.access
    return access


def _note(request: Request, identity: Identity) -> None:
    """Whoever changes something is in the broker's log."""
    address = request.client.host if request.client else ""
    path = name_of(request.scope["path"])
    logger.info(
        "console: %s %s by %s from %s",
        request.method,
        path,
        identity.name or "anyone",
        address,
        extra=fields(event="action", method=request.method, path=path, user=identity.name),
    )


def _allow(role: Role) -> Any:
    async def allow(request: Request) -> Identity:
        identity = access_of(request).identify(request)
        if identity.level < role:
            raise ApiError(403, "forbidden", f"this is for users with the role {role.name}")
        if request.method not in SAFE:
            _note(request, identity)
        return identity

    return Depends(allow)


def check(request: Request, who: Identity, action: str, topic: str) -> None:
    """Raise ApiError unless a rule allows it."""
    rights = access_of(request).rights_of(who)
    if not rights.of(action).may(topic):
        raise ApiError(403, "forbidden", str(rights.refusal(action, topic)))


def by(who: Identity) -> str:
    """Who did something, for the record."""
    return f"user:{who.name}" if who.name else "anyone (console)"


#: Anyone who is known; what they may see and do is asked of the rules.
Known = Annotated[Identity, _allow(Role.client)]
Viewer = Annotated[Identity, _allow(Role.viewer)]
Reader = Annotated[Identity, _allow(Role.reader)]
Operator = Annotated[Identity, _allow(Role.operator)]
TheBroker = Annotated[ControlLink, Depends(_the_broker)]
TheAccess = Annotated[AccessControl, Depends(_the_access)]


async def _topic(topic: Annotated[str, Path(description="percent-encoded, `/` as `%2F`")]) -> str:
    return name_of(topic)


async def _queue(name: Annotated[str, Path(description="percent-encoded, `/` as `%2F`")]) -> str:
    return name_of(name)


TopicName = Annotated[str, Depends(_topic)]
QueueName = Annotated[str, Depends(_queue)]


async def _listing(
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=8192)] = None,
    sort: Annotated[
        str, Query(max_length=64, description="a field; `-field`: the largest first")
    ] = "",
    q: Annotated[str, Query(max_length=1024, description="only what contains this")] = "",
) -> dict[str, Any]:
    return {"limit": limit, "cursor": cursor, "sort": sort, "q": q}


Listing = Annotated[dict[str, Any], Depends(_listing)]


def shown(message: dict[str, Any]) -> dict[str, Any]:
    """A message of the broker as the API shows it."""
    payload = base64.b64decode(message.pop("payload"))
    truncated = len(payload) < message["size"]
    text = text_of(payload, truncated)
    return {
        **message,
        "text": text,
        "base64": None if text is not None else base64.b64encode(payload).decode(),
        "json": text is not None and not truncated and is_json(text),
        "truncated": truncated,
    }


def text_of(payload: bytes, truncated: bool) -> str | None:
    """The payload as text. Where it was cut, a character may have been cut too."""
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        if truncated and error.reason == "unexpected end of data":
            return payload[: error.start].decode()
        return None


def is_json(text: str) -> bool:
    if not text or len(text) > MOST_JSON:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
