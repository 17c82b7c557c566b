"""The output of `headwater log`: lines, tables, JSON, Parquet."""

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from headwater.cli.output import plain_table, progress_bar, shown, size_of, time_of
from headwater.cli.streams import out

if TYPE_CHECKING:
    from headwater.log.embedded.verify import SegmentReport
    from headwater.log.embedded.view import View
    from headwater.message import Batch

READ_BYTES = 4 << 20


def write_json(file: TextIO, batches: Iterable["Batch"]) -> None:
    """One object per message and line."""
    for batch in batches:
        file.writelines(_json_lines(batch))


def _json_lines(batch: "Batch") -> Iterator[str]:
    run = batch.run
    # Pairs, because a header may come twice.
    shared = {
        "timestamp": time_of(batch.timestamp),
        "topic": run.topic,
        "protocol": run.protocol,
        "publisher": run.publisher,
        "headers": [list(pair) for pair in run.headers],
    }
    for offset, payload in enumerate(run.payloads, batch.offset):
        message = {"offset": offset, **shared, **_text(payload)}
        yield json.dumps(message, ensure_ascii=False) + "\n"


def _text(payload: bytes) -> dict[str, str]:
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(payload).decode(), "encoding": "base64"}


def write_parquet(
    view: "View", path: Path, first: int, end: int, wanted: Callable[[str], bool]
) -> None:
    """One row per message, see record.FLAT_SCHEMA."""
    import pyarrow.parquet

    from headwater.log.record import FLAT_SCHEMA

    at = first
    with (
        pyarrow.parquet.ParquetWriter(path, FLAT_SCHEMA, compression="zstd") as writer,
        progress_bar("dumping") as progress,
    ):
        while at < end:
            rows, at = view.read_flat(at, wanted, READ_BYTES, end)
            if rows:
                writer.write_table(pyarrow.Table.from_batches(rows))
            progress(at - first, end - first)


def print_summary(view: "View") -> None:
    if view.start == view.end:
        print(f"offsets   none; the next message gets offset {view.end}")
    else:
        number = view.end - view.start
        print(f"offsets   {view.start} to {view.end - 1}: {number} messages")
    first = view.first_timestamp()
    if first is not None:
        print(f"time      {time_of(first)} to {time_of(view.last_timestamp)}")
    sealed = sum(segment.sealed for segment in view.segments)
    print(f"size      {size_of(view.size)}, {len(view.segments)} segments, {sealed} sealed")


def print_segments(view: "View") -> None:
    table = plain_table("segment", "state", "messages", "size", "last message", left=2)
    for segment in view.segments:
        active = segment is view.segments[-1]
        state = "sealed" if segment.sealed else "active" if active else "full"
        last = time_of(segment.last_timestamp)[:19] if segment.last_timestamp else ""
        messages = str(segment.end - segment.base)
        table.add_row(segment.name, state, messages, size_of(segment.size), last)
    out().print(table)


def print_topics(view: "View", number: int) -> None:
    """The topics with the most messages."""
    from rich.text import Text

    with progress_bar("counting") as progress:
        counts = view.count_topics(progress)
    table = plain_table("topic", "messages")
    for topic, count in counts.most_common(number):
        # As Text, because rich takes brackets in a plain string for its markup.
        table.add_row(Text(shown(topic)), str(count))
    out().print(table)
    if len(counts) > number:
        print(f"and {len(counts) - number} more topics")


def print_batch(batch: "Batch") -> None:
    topic, when = shown(batch.run.topic), time_of(batch.timestamp)
    for offset, payload in enumerate(batch.run.payloads, batch.offset):
        text = _text(payload)
        mark = "base64:" if "encoding" in text else ""
        print(f"{offset}  {when}  {topic}  {mark}{shown(text['payload'])}")


def print_reports(reports: "list[SegmentReport]") -> bool:
    """Print the reports. Returns whether anything is damaged."""
    for report in reports:
        for damage in report.damage:
            print(f"{report.name}: {damage}")
        if report.given_up:
            print(f"{report.name}: {report.given_up} messages were lost before an earlier repair")
        if report.torn:
            print(
                f"{report.name}: {report.torn} bytes of an unfinished write at the end; this is no "
                "damage: a running broker is writing them, a starting broker cuts them off"
            )
    damaged = [report for report in reports if report.damage]
    frames, size = sum(r.frames for r in reports), sum(r.size for r in reports)
    checked = f"{len(reports)} segments, {frames} frames, {size_of(size)}"
    print(f"{checked}: {len(damaged)} damaged" if damaged else f"{checked}: no damage")
    return bool(damaged)
