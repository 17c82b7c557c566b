"""How long rows are kept: the property `headwater.retention` of a table.

Rows are old by the day they came where the table has a column `date`, so that whole days go and no
file is written anew; otherwise by a column that is a time. Where rows say which record they came
from, the commit that deletes them also says from which offset on the table has all of them: the
audit must not look for the others.

The properties are in a project's definitions, which only Spark can load. A pipeline that runs notes
them together with a fingerprint of the definitions: as long as the fingerprint is the same, upkeep
needs no Spark to know them.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, Transaction

from headwater.errors import HeadwaterError
from headwater.pipeline.project.paths import OFFSETS
from headwater.pipeline.project.project import Project
from headwater.pipeline.tables.delta import Table, lock_of, with_retries
from headwater.pipeline.tables.stored import StoredTable
from headwater.units import parse_duration

if TYPE_CHECKING:
    from headwater.pipeline.definitions.graph import Graph

RETENTION = "headwater.retention"
_NOTE = "retention.json"
#: The last one says how old a session is. Other tables: the first column that is a time.
_AGE_COLUMNS = ("date", "timestamp", "_timestamp", "last_seen")


@dataclass(frozen=True, slots=True)
class ExpiredRows:
    """The rows of a table that are too old."""

    rows: int
    #: Behind the last of their offsets, where they have any.
    end: int | None
    #: The condition that selects them, in deltalake's SQL.
    condition: str


def expire(table: Table, retention: str) -> int:
    """Delete old rows; returns how many."""
    old = old_rows(table, retention)
    if not old.rows:
        return 0
    with lock_of(table.path):
        found = with_retries(
            lambda: table.delta().delete(old.condition, commit_properties=_noting(table, old))
        )
    return int(found.get("num_deleted_rows") or 0)


def kept_from(table: StoredTable) -> int:
    """From which offset on a table still has every row that it got."""
    return table.last_batch(RETENTION) or 0


def _noting(table: StoredTable, old: ExpiredRows) -> CommitProperties | None:
    if old.end is None:
        return None
    return CommitProperties(
        app_transactions=[Transaction(RETENTION, max(old.end, kept_from(table)))]
    )


def old_rows(table: StoredTable, retention: str) -> ExpiredRows:
    column = _age_column(table)
    oldest = datetime.now(UTC) - timedelta(seconds=_seconds(table, retention))
    by_day = column.type == pa.date32()
    limit: Any = oldest.date() if by_day else oldest
    # A text takes the column's type. TIMESTAMP would be of nanoseconds, which compare with nothing.
    condition = f"`{column.name}` < {'DATE ' if by_day else ''}'{limit.isoformat()}'"
    offsets = [name for name in OFFSETS if name in table.arrow_schema.names]
    rows = table.dataset().scanner(
        [*offsets, column.name], filter=pc.field(column.name) < pa.scalar(limit, column.type)
    )
    count, end = 0, None
    for batch in rows.to_batches():
        count += len(batch)
        if offsets and len(batch):
            end = max(end or 0, pc.max(batch.column(offsets[0])).as_py() + 1)
    return ExpiredRows(count, end, condition)


def _age_column(table: StoredTable) -> Any:
    schema = table.arrow_schema
    times = [field for field in schema if pa.types.is_timestamp(field.type)]
    named = [schema.field(name) for name in _AGE_COLUMNS if name in schema.names]
    known = [field for field in named if field.type == pa.date32() or field in times]
    if not known and not times:
        raise HeadwaterError(
            f"the table {table.name} has {RETENTION}, but no column that says how old a row is"
        )
    return (known or times)[0]


def _seconds(table: StoredTable, retention: str) -> float:
    try:
        return parse_duration(retention)
    except ValueError:
        raise HeadwaterError(
            f'{RETENTION} of the table {table.name} must be a duration such as "30d", not '
            f'"{retention}"'
        ) from None


# The retentions that the definitions state


def retentions_of(graph: "Graph") -> dict[str, str]:
    """The retention of each table that has one."""
    found = {name: node.properties.get(RETENTION) for name, node in graph.nodes.items()}
    return {name: value for name, value in found.items() if value}


def note(project: Project, retentions: Mapping[str, str]) -> None:
    """Write down the retentions of the definitions, replacing the file in one step."""
    project.state.mkdir(parents=True, exist_ok=True)
    written = project.state / f".{_NOTE}"
    written.write_text(
        json.dumps({"definitions": fingerprint(project), "retention": dict(retentions)})
    )
    os.replace(written, project.state / _NOTE)


def noted(project: Project) -> dict[str, str] | None:
    """The retentions that were noted; None if the definitions have changed since then."""
    try:
        found = json.loads((project.state / _NOTE).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    if found["definitions"] != fingerprint(project):
        return None
    retentions: dict[str, str] = found["retention"]
    return retentions


def fingerprint(project: Project) -> str:
    """A hash over the definitions and the project's file."""
    content = sha256()
    for file in (project.file, *project.definitions()):
        text = file.read_bytes()
        content.update(f"{file.relative_to(project.root)} {len(text)}\n".encode() + text)
    return content.hexdigest()
