"""CrystalConnector as one broker serves it."""

import logging
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.gate import KnownApp
from headwater.protocols.base import Service, Terms
from headwater.protocols.crystal.names import NAME
from headwater.protocols.crystal.settings import CrystalSettings

if TYPE_CHECKING:
    from headwater.protocols.crystal.server import CrystalSession

logger = logging.getLogger(__name__)

# So many IDs are noted in the log. Whoever makes up more has been noted often enough.
MOST_NOTED = 1000

OFF = (
    "crystal is off, because it has no secret: set [crystal] secret_key "
    "or HEADWATER_CRYSTAL_SECRET_KEY, or add a group of clients with "
    "'headwater app add NAME --protocol crystal'"
)
#: The app of those who know the secret that all share.
SHARED = "crystal"

_ID = re.compile("[a-z0-9_]+")


class CrystalService(Service):
    def __init__(self, settings: CrystalSettings, apps: dict[str, KnownApp] | None = None) -> None:
        apps = {} if apps is None else apps
        if settings.secret_key:
            apps[SHARED] = KnownApp(NAME, settings.secret_key)
        for group in settings.groups:
            apps[group.name] = KnownApp(NAME, group.secret_key, group.role)
        self._apps = apps
        self._noted: set[str] = set()

    @property
    def off(self) -> str:  # type: ignore[override]
        return "" if any(app.protocol == NAME for app in self._apps.values()) else OFF

    def session(self, terms: Terms) -> "CrystalSession":
        # Here, because its messages take 3 MB, and without a secret there are none.
        from headwater.protocols.crystal.server import CrystalSession

        return CrystalSession(terms, self)

    def note(self, names: Iterable[str]) -> None:
        """The document recommends names of a certain form. Others work, and are noted once."""
        noted = self._noted
        for name in names:
            if not _ID.fullmatch(name) and name not in noted and len(noted) < MOST_NOTED:
                noted.add(name)
                logger.info("an ID that CrystalConnector does not recommend: %r", name)
