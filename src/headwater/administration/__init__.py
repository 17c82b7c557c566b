"""What an operator can ask of a running broker, through its control socket."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from headwater.apps import Apps
from headwater.broker.overview import Overview
from headwater.control import Handler, find
from headwater.errors import Code, Refusal


class Administration:
    """`secrets` are the apps that may connect: at first those of the configuration. They change
    here, and `declare` is told of each of them, so that it has its queue."""

    def __init__(
        self,
        overview: Overview,
        apps: Apps,
        secrets: dict[str, str],
        declare: Callable[[str], None],
    ) -> None:
        self._overview = overview
        self._apps = apps
        self._secrets = secrets
        self._fixed = frozenset(secrets)
        self._declare = declare

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "app.add": self.add_app,
            "app.list": self.list_apps,
            "app.remove": self.remove_app,
            "queue.list": self._overview.queues,
            "queue.show": self.show,
            "queue.redrive": self.redrive,
            "queue.purge": self.purge,
        }

    async def load_apps(self) -> None:
        """Let in what was added with `headwater app add`, now and before."""
        for app in await asyncio.to_thread(self._apps.list):
            self._secrets.setdefault(app.client_id, app.client_secret)
        for name in self._secrets:
            self._declare(name)

    async def add_app(self, name: str) -> dict[str, str]:
        if name in self._fixed:
            raise Refusal(Code.ALREADY_EXISTS, f"the configuration has an app {name} already")
        secret = await asyncio.to_thread(self._apps.add, name)
        self._secrets[name] = secret
        self._declare(name)
        return {"client_id": name, "client_secret": secret}

    async def list_apps(self) -> list[dict[str, Any]]:
        apps = await asyncio.to_thread(self._apps.list)
        return [{"client_id": app.client_id, "created": app.created} for app in apps]

    async def remove_app(self, name: str) -> None:
        await asyncio.to_thread(self._apps.remove, name)
        if name not in self._fixed:
            self._secrets.pop(name, None)

    async def show(self, name: str) -> dict[str, Any]:
        return await self._overview.queue(self._named(name))

    async def redrive(
        self, name: str, progress: Callable[[int, int], None], limit: int | None = None
    ) -> dict[str, int]:
        return {"redriven": await self._overview.redrive(self._named(name), limit, progress)}

    async def purge(self, name: str) -> dict[str, int]:
        return {"purged": await self._overview.purge(self._named(name))}

    def _named(self, name: str) -> str:
        return find(name, self._overview.names())
