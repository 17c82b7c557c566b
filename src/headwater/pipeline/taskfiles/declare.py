"""The declaration that tasks write the files of a table, and which table functions have made it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from headwater.pipeline.tables.parquet import Addition

_ATTRIBUTE = "task_files"


class TaskFiles(ABC):
    """Tables whose files are written by the tasks that read the log."""

    #: Tables with the same key are filled by one streaming query.
    key: str

    @abstractmethod
    def stream(self, tables: "Path") -> "DataFrame":
        """A stream with one row for each file, which tasks write below the directory of tables."""

    @abstractmethod
    def collect(self, batch: "DataFrame") -> "AbstractContextManager[Mapping[str, Addition]]":
        """Run a micro-batch; the context has the files and columns that it adds to each table.

        The caller commits them inside the context. It ends without an exception when all of them
        are committed; files that are not are deleted either way.
        """


def declare(function: Callable[[], Any], task_files: TaskFiles) -> None:
    """Declare for a table function that tasks write its files."""
    setattr(function, _ATTRIBUTE, task_files)


def declared(function: Callable[[], Any]) -> TaskFiles | None:
    """The declaration of a table function; None if it has none."""
    task_files = getattr(function, _ATTRIBUTE, None)
    return task_files if isinstance(task_files, TaskFiles) else None
