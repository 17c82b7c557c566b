"""What the decorators of Spark Declarative Pipelines register, and how they find where.

Borrowed from PySpark: the classes and the context behind `pyspark.pipelines`. Only the decorators
are public; the way from a decorator to a runner is Spark's own, and its only runner needs a Spark
Connect server. If these classes change, definition files cannot be loaded.
"""

from headwater.borrowed import PYSPARK

with PYSPARK.imports():
    from pyspark.pipelines.flow import AutoCdcFlow, Flow
    from pyspark.pipelines.graph_element_registry import (
        GraphElementRegistry,
        graph_element_registration_context,
    )
    from pyspark.pipelines.output import (
        MaterializedView,
        Output,
        Sink,
        StreamingTable,
        TemporaryView,
    )
    from pyspark.pipelines.output import Table as TableOutput
    from pyspark.pipelines.source_code_location import SourceCodeLocation

__all__ = [
    "AutoCdcFlow",
    "Flow",
    "GraphElementRegistry",
    "MaterializedView",
    "Output",
    "Sink",
    "SourceCodeLocation",
    "StreamingTable",
    "TableOutput",
    "TemporaryView",
    "check",
    "graph_element_registration_context",
]

_OUTPUT = ("name", "comment", "source_code_location")
_TABLE = (*_OUTPUT, "table_properties", "partition_cols", "cluster_by", "schema", "format")
_PARAMETERS: dict[type, tuple[str, ...]] = {
    Flow: ("name", "target", "spark_conf", "source_code_location", "func"),
    SourceCodeLocation: ("filename", "line_number"),
    TemporaryView: _OUTPUT,
    StreamingTable: _TABLE,
    MaterializedView: _TABLE,
    Sink: (*_OUTPUT, "format", "options"),
}
#: What a registry has to have, each with its parameters.
_METHODS = {
    "register_output": ("output",),
    "register_flow": ("flow",),
    "register_auto_cdc_flow": ("flow",),
    "register_sql": ("sql_text", "file_path"),
}


def check() -> None:
    """Compare PySpark with what this module knows of it."""
    for kind, names in _PARAMETERS.items():
        PYSPARK.check_parameters(kind.__name__, kind, *names)
    registry = GraphElementRegistry
    PYSPARK.check_attributes(registry.__name__, registry, *_METHODS)
    for name, names in _METHODS.items():
        method = getattr(registry, name)
        PYSPARK.check_parameters(f"{registry.__name__}.{name}", method, "self", *names)
    for name in sorted(registry.__abstractmethods__ - _METHODS.keys()):
        raise PYSPARK.changed(f"{registry.__name__} needs a method {name}")
    context = graph_element_registration_context
    PYSPARK.check_parameters(context.__name__, context, "registry")
