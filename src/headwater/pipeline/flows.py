"""Tables that are fed by one streaming query together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Shared:
    """What a table function may carry as its attribute `shared`.

    Tables with the same `key` are fed by one streaming query over `stream()`: each micro-batch is
    computed once, and `select` takes this table's rows from it. Spark's own runner knows nothing of
    this and calls the function itself.
    """

    key: str
    stream: "Callable[[], DataFrame]"
    select: "Callable[[DataFrame], DataFrame]"
