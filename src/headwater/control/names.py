"""Find a queue by the name that a person gives it."""

from collections.abc import Iterable

from headwater.errors import Code, HeadwaterError, Refusal

_SHOWN = 10


def find(name: str, names: Iterable[str]) -> str:
    """The full name of the queue; `name` may lack the protocol in front.

    With a protocol `p`, `p/shop/orders` is also `shop/orders`; `p/shop/`, which has no name of its
    own, is also `shop`. A name that fits two queues is refused.
    """
    names = sorted(names)
    if name in names:
        return name
    meant = [each for each in names if name in (_short(each), _short(each).rstrip("/"))]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise HeadwaterError(f'"{name}" may be {" or ".join(meant)}')
    raise Refusal(Code.NOT_FOUND, f'there is no queue "{name}"; {_known(names)}')


def _known(names: list[str]) -> str:
    """The names there are; of many, the first few."""
    if not names:
        return "there are none yet"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"there are {', '.join(names[:_SHOWN])}{more}"


def _short(name: str) -> str:
    return name.partition("/")[2]
