"""What can be chosen about CrystalConnector."""

from headwater import units
from headwater.actions import APP_ROLE
from headwater.declare import array, required, setting, table


@table
class CrystalGroup:
    name: str = required(units.client_id(), "The name of the group, as rules call it: `app:NAME`.")
    secret_key: str = required(units.app_secret(), "The key that clients of the group know.")
    role: str = setting(units.client_id(), APP_ROLE, "The role of the group.")


@table
class CrystalSettings:
    secret_key: str | None = setting(
        units.or_off(units.secret()),
        "off",
        "The key that all clients know that are of no group; without this one, and without groups, "
        "there is no listener for them.",
    )
    groups: tuple[CrystalGroup, ...] = array(
        CrystalGroup,
        "Groups of clients with a key of their own, besides those that were made with "
        "`headwater app add NAME --protocol crystal`.",
    )
