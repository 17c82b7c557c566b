"""A sink of Spark that notes how old each message is when it arrives.

Spark sends this to its workers, so it stands alone: it imports nothing of the benchmark.
"""

import array
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

NAME = "delays"


class Delays(DataSource):
    """The option `directory` says where to note."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return Writer(self.options["directory"])


class Writer(DataSourceStreamArrowWriter):
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        noted = array.array("q")
        for batch in iterator:
            arrived = time.monotonic_ns()  # the same clock in all processes of a machine
            for value in batch.column("value").to_pylist():
                noted.extend((struct.unpack_from(">q", value)[0], arrived))
        if noted:
            # Named when complete: someone may be reading.
            unfinished = Path(self._directory, f".{os.urandom(8).hex()}")
            unfinished.write_bytes(noted.tobytes())
            unfinished.rename(unfinished.with_name(unfinished.name[1:]))
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None: ...

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None: ...


def read(directory: Path) -> list[tuple[int, int]]:
    """When each message was sent, and when it arrived."""
    noted = array.array("q")
    for file in directory.glob("[0-9a-f]*"):
        noted.frombytes(file.read_bytes())
    return list(zip(noted[::2], noted[1::2], strict=True))
