"""A pipeline on a Spark Connect server: the graph there, what is sent to it, and its runs.

Borrowed from PySpark: what its program `spark-pipelines` does with the server, and the settings of
Spark Connect's client. PySpark has no public call for either; the program itself runs a pipeline
once, starts a session of its own, and says what happens in lines of text only. If these functions
change, `headwater pipeline run --remote` says so and does not start.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headwater.borrowed import PYSPARK
from headwater.pipeline.definitions.declarative import Output
from headwater.pipeline.definitions.graph import OutputKind, kind_of, unqualified

with PYSPARK.imports():
    import pyspark.sql.connect.proto as messages
    from pyspark.pipelines import spark_connect_pipeline as pipelines
    from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
    from pyspark.pipelines.block_session_mutations import block_session_mutations
    from pyspark.pipelines.spark_connect_graph_element_registry import (
        SparkConnectGraphElementRegistry,
    )
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.client.retries import DefaultPolicy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ServerRegistry(SparkConnectGraphElementRegistry):
    """Sends definitions to the server, and notes in `kinds` what they are of."""

    def __init__(self, spark: "SparkSession", graph: str, kinds: dict[str, OutputKind]) -> None:
        super().__init__(spark, graph)
        self._kinds = kinds

    def register_output(self, output: Output) -> None:
        self._kinds[unqualified(output.name)] = kind_of(output)
        super().register_output(output)


def create_graph(
    spark: "SparkSession", catalog: str | None, database: str | None, settings: Mapping[str, str]
) -> str:
    """Returns the graph's id."""
    check()
    return pipelines.create_dataflow_graph(spark, catalog, database, settings)


@contextmanager
def defining(spark: "SparkSession", graph: str) -> Iterator[None]:
    """Definition files may run: names are those of the graph, and the session stays as it is."""
    with (
        add_pipeline_analysis_context(spark, graph, flow_name=None),
        block_session_mutations(),
    ):
        yield


def run_events(
    spark: "SparkSession", graph: str, refresh: Sequence[str] | None, dry: bool, storage: str
) -> Iterator[str]:
    """One run, in sentences of the server. `refresh`: tables that are rebuilt; all if empty."""
    answers = pipelines.start_run(
        spark,
        graph,
        full_refresh=refresh,
        full_refresh_all=refresh is not None and not refresh,
        refresh=None,
        dry=dry,
        storage=storage,
    )
    for answer in answers:
        if (found := answer.get("pipeline_event_result")) is not None:
            yield found.event.message


def drop_graph(spark: "SparkSession", graph: str) -> None:
    """Let the server forget a graph. A run of it ends."""
    command = messages.Command()
    command.pipeline_command.drop_dataflow_graph.dataflow_graph_id = graph
    client: Any = spark.client
    client.execute_command(command)


def endpoint(address: str) -> tuple[str, int]:
    """Host and port of an address such as sc://localhost:15002."""
    host, _, port = DefaultChannelBuilder(address).endpoint.rpartition(":")
    return host.strip("[]"), int(port)


def limit_retries(spark: "SparkSession", most: int) -> None:
    """How often the client tries to reach a server that does not answer."""
    spark.client.set_retry_policies([DefaultPolicy(max_retries=most)])


def check() -> None:
    """Compare PySpark with what this module knows of it."""
    PYSPARK.check_attributes(
        "spark_connect_pipeline", pipelines, "create_dataflow_graph", "start_run"
    )
    run = ("full_refresh", "full_refresh_all", "refresh", "dry", "storage")
    for function, names in (
        (
            pipelines.create_dataflow_graph,
            ("spark", "default_catalog", "default_database", "sql_conf"),
        ),
        (pipelines.start_run, ("spark", "dataflow_graph_id", *run)),
        (add_pipeline_analysis_context, ("spark", "dataflow_graph_id", "flow_name")),
        (block_session_mutations, ()),
        (SparkConnectGraphElementRegistry, ("spark", "dataflow_graph_id")),
        (SparkConnectGraphElementRegistry.register_output, ("self", "output")),
    ):
        PYSPARK.check_parameters(function.__name__, function, *names)
    fields = messages.PipelineCommand.DropDataflowGraph.DESCRIPTOR.fields_by_name
    if "dataflow_graph_id" not in fields:
        raise PYSPARK.changed("the command DropDataflowGraph has no dataflow_graph_id")
