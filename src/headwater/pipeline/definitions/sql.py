"""Definition files in SQL.

    CREATE [OR REFRESH] STREAMING TABLE | MATERIALIZED VIEW | TEMPORARY VIEW <name>
      [COMMENT '…'] [PARTITIONED BY (…)] [TBLPROPERTIES ('…' = '…', …)]
    AS SELECT …;

Only what is around the query is read here; the query itself is Spark's.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError
from headwater.pipeline.definitions.declarative import (
    Flow,
    MaterializedView,
    Output,
    SourceCodeLocation,
    StreamingTable,
    TemporaryView,
)

_CREATE = re.compile(
    r"\s*CREATE\s+(?:OR\s+REFRESH\s+)?(STREAMING\s+TABLE|MATERIALIZED\s+VIEW|TEMPORARY\s+VIEW)\s+"
    r"(?:IF\s+NOT\s+EXISTS\s+)?([\w.`]+)(?P<clauses>(?:'(?:[^']|'')*'|[^'])*?)\bAS\s+"
    r"(?P<query>(?:(?:SELECT|WITH|FROM|VALUES)\b|\().*)",
    re.IGNORECASE | re.DOTALL,
)
_PARTITIONED = re.compile(r"PARTITIONED\s+BY\s*\(([^)]*)\)", re.IGNORECASE)
_PROPERTIES = re.compile(r"TBLPROPERTIES\s*\(([^)]*)\)", re.IGNORECASE)
_PROPERTY = re.compile(r"'([^']*)'\s*=\s*'([^']*)'")
# A comment, a quoted text, or a semicolon: only the last one ends a statement.
_TOKEN = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|;", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Statement:
    output: Output
    query: str

    def flow(self, function: Callable[[], Any]) -> Flow:
        return Flow(
            name=self.output.name,
            target=self.output.name,
            spark_conf={},
            source_code_location=self.output.source_code_location,
            func=function,
        )


def statements(text: str, file: Path) -> Iterator[Statement]:
    for statement, line in _split(text):
        found = _CREATE.fullmatch(statement)
        if found is None:
            raise HeadwaterError(
                f"{file}, line {line}: only CREATE STREAMING TABLE, CREATE MATERIALIZED VIEW and "
                "CREATE TEMPORARY VIEW, each with AS and a query, can be in a definition file"
            )
        place = SourceCodeLocation(filename=str(file), line_number=line)
        yield Statement(_output(found, place), found["query"])


def _output(found: re.Match[str], place: SourceCodeLocation) -> Output:
    kind, name, clauses = found[1].split()[0].upper(), found[2], found["clauses"]
    if kind == "TEMPORARY":
        return TemporaryView(name=name, comment=None, source_code_location=place)
    columns = _PARTITIONED.search(clauses)
    properties = _PROPERTIES.search(clauses)
    made = StreamingTable if kind == "STREAMING" else MaterializedView
    return made(
        name=name,
        comment=None,
        source_code_location=place,
        table_properties=dict(_PROPERTY.findall(properties[1])) if properties else {},
        partition_cols=[each.strip(" `") for each in columns[1].split(",")] if columns else None,
        cluster_by=None,
        schema=None,
        format=None,
    )


def _split(text: str) -> Iterator[tuple[str, int]]:
    """The statements of a text without comments, each with its line."""
    part, start, line = "", 0, 1
    for token in _TOKEN.finditer(text):
        part += text[start : token.start()]
        start = token.end()
        if token[0] == ";":
            if part.strip():
                yield part.strip(), line
            part, line = "", text.count("\n", 0, start) + 1
        elif not token[0].startswith(("--", "/*")):
            part += token[0]
    part += text[start:]
    if part.strip():
        yield part.strip(), line
