"""What a person means by the name of a queue."""

from collections.abc import Iterable

from headwater.errors import Code, HeadwaterError, Refusal


def find(name: str, names: Iterable[str]) -> str:
    """The queue that is meant, with or without the protocol in front of it.

    `prism/shop/orders` is also `shop/orders`; `prism/shop/`, which has no name of its own, is also
    `shop`. A name that fits two queues is refused.
    """
    names = sorted(names)
    if name in names:
        return name
    meant = [each for each in names if name in (_short(each), _short(each).rstrip("/"))]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise HeadwaterError(f'"{name}" may be {" or ".join(meant)}')
    known = f"there are {', '.join(names)}" if names else "there are none yet"
    raise Refusal(Code.NOT_FOUND, f'there is no queue "{name}"; {known}')


def _short(name: str) -> str:
    return name.partition("/")[2]
