"""What is given inputs. `NAMES` can be had without importing the broker."""

from fuzz.targets.base import Target

PROTOCOLS = ("psmb", "bmtp", "bpsp", "prism", "crystal")
NAMES = (
    *(f"{name}{when}" for name in PROTOCOLS for when in ("", "-after")),
    *("any", "console", "control", "flight"),
)


def target_named(name: str) -> Target:
    from fuzz.targets.console import ConsoleTarget
    from fuzz.targets.control import ControlTarget
    from fuzz.targets.flight import FlightTarget
    from fuzz.targets.sessions import session_targets

    targets = [*session_targets(), ConsoleTarget(), ControlTarget(), FlightTarget()]
    return next(each for each in targets if each.name == name)
