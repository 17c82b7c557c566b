"""What can be chosen about CrystalConnector."""

from headwater import units
from headwater.declare import setting, table


@table
class CrystalSettings:
    secret_key: str | None = setting(
        units.or_off(units.secret()),
        "off",
        "The key that all clients have to know; without one, there is no listener for them.",
    )
