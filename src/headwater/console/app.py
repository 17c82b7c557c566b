"""The application: guard, API, metrics and the page, put together."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Response
from fastapi.responses import FileResponse, PlainTextResponse

from headwater import __version__
from headwater.console import metrics
from headwater.console.access import AccessControl
from headwater.console.connections import OpenConnections
from headwater.console.control_link import ControlLink, NoAnswer
from headwater.console.dependencies import MOMENT, TheBroker, Viewer
from headwater.console.events import Streams
from headwater.console.guard import Guard, name_of
from headwater.console.live import Tails
from headwater.console.problems import ApiError, tell_errors
from headwater.console.routes import lists, live, messages, queues, users
from headwater.console.settings import ConsoleSettings
from headwater.registry import REGISTRY

STATIC = Path(__file__).parent / "static"
_COLOURS = "".join(
    f".protocol.{each.name}::before {{ background: {each.colour}; }}\n"
    for each in REGISTRY.values()
)
_EXAMPLES = {
    use: next((found for each in REGISTRY.values() if (found := getattr(each.examples, use))), None)
    for use in ("publish", "subscribe", "consume")
}
API = "/api/v1"
#: Metrics of the last so many seconds are as good.
METRICS_SECONDS = 2.0
#: How many large messages are on their way to the broker at the same time: each of them is in
#: memory about four times.
LARGE_AT_ONCE = 2


def make_app(settings: ConsoleSettings, connections: OpenConnections) -> FastAPI:
    broker = ControlLink(settings.data)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        app.state.tails.close()
        broker.close()

    app = FastAPI(
        title="Headwater",
        version=__version__,
        description="See the broker and act on it: all that the console shows and does.",
        openapi_url=f"{API}/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.settings = settings
    app.state.connections = connections
    app.state.broker = broker
    app.state.access = AccessControl(settings)
    app.state.streams = Streams()
    app.state.tails = Tails(broker)
    app.state.large = asyncio.Semaphore(LARGE_AT_ONCE)
    for routes in (users, live, messages, queues, lists):
        app.include_router(routes.router, prefix=API)
    tell_errors(app)
    _add_health(app)
    _add_page(app)
    app.add_middleware(Guard, settings=settings)
    return app


def _add_health(app: FastAPI) -> None:
    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    @app.get("/readyz", include_in_schema=False)
    async def readyz(broker: TheBroker) -> PlainTextResponse:
        try:
            log = await broker.recent(MOMENT, "log.show")
        except NoAnswer as error:
            return PlainTextResponse(f"{error}\n", 503)
        if log["refusal"] is not None:
            return PlainTextResponse(f"{log['refusal']}\n", 503)
        return PlainTextResponse("ready\n")

    @app.get("/metrics", include_in_schema=False)
    async def figures(who: Viewer, broker: TheBroker) -> Response:
        content = dict(await broker.recent(METRICS_SECONDS, "metrics"))
        connections: OpenConnections = app.state.connections
        content["counters"] = [*content["counters"], *connections.counters()]
        access = content["access"]
        content["access"] = {**access, "limits": access["limits"] | connections.refusals()}
        return Response(metrics.exposition(content), media_type=metrics.CONTENT_TYPE)


def _add_page(app: FastAPI) -> None:
    """The page and its files. All that is neither a file nor of the API is a place inside."""

    @app.get("/api/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return _file("docs.html")

    @app.get("/static/styles/protocols.css", include_in_schema=False)
    async def colours() -> Response:
        return Response(_COLOURS, media_type="text/css", headers={"Cache-Control": "no-cache"})

    @app.get("/static/examples.js", include_in_schema=False)
    async def examples() -> Response:
        script = f"export const EXAMPLES = {json.dumps(_EXAMPLES)};\n"
        return Response(script, media_type="text/javascript", headers={"Cache-Control": "no-cache"})

    @app.get("/static/{path:path}", include_in_schema=False)
    async def file(path: str) -> FileResponse:
        return _file(path)

    @app.get("/{path:path}", include_in_schema=False)
    async def page(path: str) -> FileResponse:
        if path.startswith("api/"):
            raise ApiError(404, "not_found", f"there is no /{name_of(path)}")
        return _file("index.html")


def _file(path: str) -> FileResponse:
    try:
        file = (STATIC / path).resolve()
        found = file.is_file() and file.is_relative_to(STATIC.resolve())
    except (OSError, ValueError):
        found = False
    if not found:
        raise ApiError(404, "not_found", "there is no such file")
    return FileResponse(file, headers={"Cache-Control": "no-cache"})
