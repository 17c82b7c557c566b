"""Lists and figures that every viewer may see: nothing here shows the content of a message."""

from typing import Any

from fastapi import APIRouter

from headwater.console import models, pages
from headwater.console.dependencies import (
    FAILURES,
    MOMENT,
    Listing,
    Operator,
    QueueName,
    TheBroker,
    TopicName,
    Viewer,
    by,
)

router = APIRouter(responses=FAILURES)


@router.get("/overview", response_model=models.Overview, tags=["overview"])
async def overview(who: Viewer, broker: TheBroker) -> Any:
    """The broker at a glance, with the rates of the last 15 minutes."""
    return await pages.overview(broker, {})


@router.get("/topics", response_model=models.Page[models.TopicFigures], tags=["topics"])
async def topics(who: Viewer, broker: TheBroker, listing: Listing) -> Any:
    """Sorted by topic, count, messages_per_second, first or last."""
    return await pages.topics(broker, listing)


@router.get("/topics/{topic}", response_model=models.TopicFigures, tags=["topics"])
async def topic(who: Viewer, broker: TheBroker, topic: TopicName) -> Any:
    return await broker.recent(MOMENT, "topics.show", topic=topic)


@router.get(
    "/connections", response_model=models.Page[models.ConnectionFigures], tags=["connections"]
)
async def connections(who: Viewer, broker: TheBroker, listing: Listing) -> Any:
    """The newest first, or sorted by since, address, protocol, client, name, subscriptions, lag,
    in, out, in_rate, out_rate, share (of the loop) or slowed."""
    return await pages.connections(broker, listing)


@router.get("/connections/{id}", response_model=models.ConnectionFigures, tags=["connections"])
async def connection(who: Viewer, broker: TheBroker, id: models.Offset) -> Any:
    return await broker.recent(MOMENT, "connections.show", id=id)


@router.delete("/connections/{id}", status_code=204, tags=["connections"])
async def close_connection(who: Operator, broker: TheBroker, id: models.Offset) -> None:
    """Say goodbye to a client in its protocol's words, and close the connection."""
    await broker.ask("connections.close", id=id, by=by(who))


@router.get(
    "/subscriptions", response_model=models.Page[models.SubscriptionFigures], tags=["subscriptions"]
)
async def subscriptions(who: Viewer, broker: TheBroker, listing: Listing) -> Any:
    """Sorted by connection, protocol, client, key, filter, durable, position or lag."""
    return await pages.subscriptions(broker, listing)


@router.get("/queues", response_model=models.Page[models.QueueFigures], tags=["queues"])
async def queues(who: Viewer, broker: TheBroker, listing: Listing) -> Any:
    """Sorted by name, protocol, consumers, waiting, in_flight, returned, dead or oldest."""
    return await pages.queues(broker, listing)


@router.get("/queues/{name}", response_model=models.QueueDetail, tags=["queues"])
async def queue(who: Viewer, broker: TheBroker, name: QueueName) -> Any:
    return await broker.recent(MOMENT, "queue.show", name=name)


@router.get("/log", response_model=models.LogDetail, tags=["log"])
async def log(who: Viewer, broker: TheBroker) -> Any:
    return await broker.recent(MOMENT, "log.show")


@router.get("/pipelines", response_model=models.Page[models.Pipeline], tags=["pipelines"])
async def pipelines(who: Viewer, broker: TheBroker, listing: Listing) -> Any:
    """What pipelines have reported; `stale`: not within the last 15 seconds."""
    return await pages.pipelines(broker, listing)
