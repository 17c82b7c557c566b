"""A dry run: definitions are loaded and analysed, and no data is touched."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.pipeline.definitions.graph import (
    Graph,
    Node,
    OutputKind,
    call_definition,
    describe_error,
)
from headwater.pipeline.definitions.names import Names
from headwater.pipeline.project.paths import AUDIT
from headwater.pipeline.project.project import Project
from headwater.pipeline.run.remote import connect, reason
from headwater.pipeline.run.runner import open_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class CheckReport:
    lines: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def check(project: Project, spark: "SparkSession") -> CheckReport:
    report = CheckReport([f"{project.name}: broker {project.servers}, storage {project.storage}"])
    try:
        graph, names, _ = open_project(spark, project)
        for node in graph.nodes.values():
            _check(node, names, report)
        _check_names(graph, report)
    except Exception as error:
        report.errors.append(describe_error(error))
    return report


def check_remotely(project: Project, address: str) -> CheckReport:
    """A dry run by a Spark Connect server."""
    report = CheckReport([f"{project.name}: broker {project.servers}, storage {project.storage}"])
    try:
        with connect(address, project) as server:
            report.lines.extend(f"{name} ({kind.value})" for name, kind in server.kinds.items())
            server.check()
    except Exception as error:
        report.errors.append(reason(error))
    return report


def _check(node: Node, names: Names, report: CheckReport) -> None:
    inputs: set[str] = set()
    columns: list[str] = []
    for flow in node.flows:
        try:
            file = Path(flow.source_code_location.filename).name
            found = call_definition(file, partial(names.evaluate, flow.func))
            streaming = found.frame.isStreaming
            if node.kind in (OutputKind.TABLE, OutputKind.SINK) and not streaming:
                report.errors.append(f"{node.place}: {node.name} has to be a stream")
            if node.kind is OutputKind.VIEW and streaming:
                report.errors.append(f"{node.place}: {node.name} has to be read in batch")
            inputs |= found.inputs
            columns = [f"{each.name} {each.dataType.simpleString()}" for each in found.frame.schema]
        except Exception as error:
            report.errors.append(describe_error(error))
    for key in [*node.keys, *node.partition_by]:
        if columns and key not in {each.split(" ")[0] for each in columns}:
            report.errors.append(f"{node.place}: {node.name} has no column {key}")
    source = ", ".join(sorted(inputs)) or "log"
    report.lines.append(f"{source} → {node.name} ({node.kind.value})")
    report.lines.extend(f"    {each}" for each in columns)


def _check_names(graph: Graph, report: CheckReport) -> None:
    if AUDIT in graph.nodes:
        report.errors.append(f"a table cannot be called {AUDIT}: the pipeline has a table {AUDIT}")
