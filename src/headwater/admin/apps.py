"""Apps that may connect, added and removed while the broker runs."""

import asyncio
from collections.abc import Callable
from typing import Any

from headwater.actions import APP_ROLE
from headwater.control import Handler
from headwater.errors import Code, Refusal
from headwater.gate import KnownApp
from headwater.identity.apps import Apps


class AppHandlers:
    """`known` are the apps that may connect: at first those of the configuration. They change here.
    `declare` is told of each new one, so that it has its queue, and `gone` of one that is removed.
    """

    def __init__(
        self,
        apps: Apps,
        known: dict[str, KnownApp],
        declare: Callable[[str], None],
        gone: Callable[[str], None],
    ) -> None:
        self._apps = apps
        self._known = known
        self._fixed = frozenset(known)
        self._declare = declare
        self._gone = gone

    def handlers(self) -> dict[str, Handler]:
        return {"app.add": self.add, "app.list": self.list_apps, "app.remove": self.remove}

    async def load(self) -> None:
        """Let in what was added with `headwater app add`, now and before."""
        for app in await asyncio.to_thread(self._apps.list):
            found = KnownApp(app.protocol, app.client_secret, app.role)
            self._known.setdefault(app.client_id, found)
        for name in self._known:
            self._declare(name)

    async def add(self, name: str, protocol: str, role: str = APP_ROLE) -> dict[str, str]:
        if name in self._fixed:
            raise Refusal(Code.ALREADY_EXISTS, f"the configuration has an app {name} already")
        secret = await asyncio.to_thread(self._apps.add, name, protocol, role)
        self._known[name] = KnownApp(protocol, secret, role)
        self._declare(name)
        return {"client_id": name, "client_secret": secret}

    async def list_apps(self) -> list[dict[str, Any]]:
        return [app.summary() for app in await asyncio.to_thread(self._apps.list)]

    async def remove(self, name: str) -> None:
        await asyncio.to_thread(self._apps.remove, name)
        if name not in self._fixed and self._known.pop(name, None) is not None:
            self._gone(name)
