"""Tables that are written where their rows are made: by the tasks that read the log.

A table function is a plain stream, which any runner can run. It may also say, in its attribute
`direct`, how the same rows become files without passing through Java, which takes several times as
long as everything else: see direct.py.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from headwater.pipeline.tables.parquet import Addition


@dataclass(frozen=True, slots=True)
class Direct:
    """Tables with the same `key` are fed by one streaming query together.

    `stream(tables)` has a row for each file that its tasks have written below the directory of
    tables. `taken(batch)` says what a micro-batch brings to each table; it is left when all of it
    is committed, or with the exception that kept it from being so.
    """

    key: str
    stream: "Callable[[Path], DataFrame]"
    taken: "Callable[[DataFrame], AbstractContextManager[Mapping[str, Addition]]]"
