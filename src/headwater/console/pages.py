"""What each list of the console is made of: asked by a GET, and again and again by a live page."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from headwater.console.control_link import ControlLink
from headwater.console.dependencies import MOMENT

Parameters = dict[str, Any]


async def overview(broker: ControlLink, parameters: Parameters) -> Any:
    return await broker.recent(MOMENT, "overview")


async def topics(broker: ControlLink, parameters: Parameters) -> Any:
    return await broker.recent(MOMENT, "topics.list", **parameters)


async def connections(broker: ControlLink, parameters: Parameters) -> Any:
    return await broker.recent(MOMENT, "connections.list", **parameters)


async def subscriptions(broker: ControlLink, parameters: Parameters) -> Any:
    return await broker.recent(MOMENT, "subscriptions.list", **parameters)


async def queues(broker: ControlLink, parameters: Parameters) -> Any:
    return await broker.recent(MOMENT, "queues.list", **parameters)


async def pipelines(broker: ControlLink, parameters: Parameters) -> Any:
    reports = await broker.recent(MOMENT, "pipelines.list")
    wanted = [each for each in reports if parameters["q"].lower() in each["pipeline"].lower()]
    return {"items": wanted, "total": len(wanted), "next": None}


PAGES: dict[str, Callable[[ControlLink, Parameters], Awaitable[Any]]] = {
    "overview": overview,
    "topics": topics,
    "connections": connections,
    "queues": queues,
    "subscriptions": subscriptions,
    "pipelines": pipelines,
}


async def encoded(broker: ControlLink, page: str, parameters: Parameters) -> str:
    """A page as JSON, made once for all who look at the same one."""
    key = json.dumps(["page", page, parameters], sort_keys=True)

    async def make() -> str:
        content = await PAGES[page](broker, parameters)
        return await asyncio.to_thread(json.dumps, content, separators=(",", ":"))

    text: str = await broker.shared(MOMENT / 2, key, make)
    return text
