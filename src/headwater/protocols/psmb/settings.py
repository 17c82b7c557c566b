"""What can be chosen about PSMB."""

from typing import Literal

from headwater import units
from headwater.declare import setting, table


@table
class PsmbSettings:
    keepalive_seconds: float = setting(
        units.number(0.1, 86400), 10, "How long a client may be silent before it is sent a NOP."
    )
    keepalive_misses: int = setting(
        units.whole_number(1, 1000), 3, "After how many unanswered NOPs a connection is closed."
    )
    new_subscribers: Literal["all", "new"] = setting(
        units.choice("all", "new"),
        "all",
        "What a subscriber id gets that comes with a pattern for the first time: `all` that is "
        "retained, or only `new` messages.",
    )
