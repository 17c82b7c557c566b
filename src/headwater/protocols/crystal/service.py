"""CrystalConnector as one broker serves it."""

import logging
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.protocols.base import Service, Terms
from headwater.protocols.crystal.settings import CrystalSettings

if TYPE_CHECKING:
    from headwater.protocols.crystal.server import CrystalSession

logger = logging.getLogger(__name__)

# So many IDs are noted in the log. Whoever makes up more has been noted often enough.
MOST_NOTED = 1000

OFF = (
    "crystal is off, because it has no secret: set [crystal] secret_key "
    "or HEADWATER_CRYSTAL_SECRET_KEY"
)

_ID = re.compile("[a-z0-9_]+")


class CrystalService(Service):
    def __init__(self, settings: CrystalSettings, apps: object = None) -> None:
        #: What clients have to know. Without one, nobody is let in.
        self.secret = (settings.secret_key or "").encode()
        self.off = "" if self.secret else OFF
        self._noted: set[str] = set()

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
