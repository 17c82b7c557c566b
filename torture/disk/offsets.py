"""Where messages were written, as a trace shows it: so it is known what retention has removed."""

from collections.abc import Iterable, Iterator

from headwater.log import record
from headwater.log.embedded import frame
from headwater.log.embedded.segment import MAGIC
from headwater.log.record import FrameRows
from torture.disk.trace import Operation
from torture.everyone.accounts import key_of


def offsets_of(operations: Iterable[Operation]) -> dict[bytes, int]:
    """The offset of each message, by its key."""
    found: dict[bytes, int] = {}
    logs: dict[tuple[int, int], bool] = {}
    for each in operations:
        if each.kind == "o":
            logs[each.pid, each.fd] = b".log" in each.first and b"/log/" in each.first
        elif each.kind == "w" and logs.get((each.pid, each.fd)) and each.first[:8] != MAGIC:
            for rows in _frames(each.first):
                table = record.flatten(rows, rows.base, rows.end, None)
                columns = table.column("offset").to_pylist(), table.column("value").to_pylist()
                for offset, payload in zip(*columns, strict=True):
                    key = key_of(payload)
                    if key is not None:
                        found[key] = offset
    return found


def _frames(data: bytes) -> Iterator[FrameRows]:
    position = 0
    while position + frame.HEADER.size < len(data):
        length, _, base, _, count = frame.HEADER.unpack_from(data, position)
        stop = position + length
        if length <= frame.HEADER.size or not count or stop > len(data):
            return  # room, or the ending of a sealed segment
        yield FrameRows(data[position + frame.HEADER.size : stop], base, count)
        position = stop
