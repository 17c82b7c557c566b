"""Apps that may connect, added and removed while the broker runs."""

import asyncio
from collections.abc import Callable
from typing import Any

from headwater.control import Handler
from headwater.errors import Code, Refusal
from headwater.identity.apps import Apps


class AppHandlers:
    """`secrets` are the apps that may connect: at first those of the configuration. They change
    here, and `declare` is told of each of them, so that it has its queue."""

    def __init__(self, apps: Apps, secrets: dict[str, str], declare: Callable[[str], None]) -> None:
        self._apps = apps
        self._secrets = secrets
        self._fixed = frozenset(secrets)
        self._declare = declare

    def handlers(self) -> dict[str, Handler]:
        return {"app.add": self.add, "app.list": self.list_apps, "app.remove": self.remove}

    async def load(self) -> None:
        """Let in what was added with `headwater app add`, now and before."""
        for app in await asyncio.to_thread(self._apps.list):
            self._secrets.setdefault(app.client_id, app.client_secret)
        for name in self._secrets:
            self._declare(name)

    async def add(self, name: str) -> dict[str, str]:
        if name in self._fixed:
            raise Refusal(Code.ALREADY_EXISTS, f"the configuration has an app {name} already")
        secret = await asyncio.to_thread(self._apps.add, name)
        self._secrets[name] = secret
        self._declare(name)
        return {"client_id": name, "client_secret": secret}

    async def list_apps(self) -> list[dict[str, Any]]:
        apps = await asyncio.to_thread(self._apps.list)
        return [{"client_id": app.client_id, "created": app.created} for app in apps]

    async def remove(self, name: str) -> None:
        await asyncio.to_thread(self._apps.remove, name)
        if name not in self._fixed:
            self._secrets.pop(name, None)
