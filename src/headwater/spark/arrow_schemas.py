"""Schemas of Spark as Arrow's, and back.

Borrowed from PySpark: `to_arrow_schema` and `from_arrow_schema`, which its own conversions use.
PySpark promises conversions of whole data frames only, and these need a session, which tasks do not
have. If the functions change, tables cannot be read as a stream, and contracts have no tables.
"""

from typing import TYPE_CHECKING

from headwater.borrowed import PYSPARK

with PYSPARK.imports():
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def arrow_schema(schema: "StructType") -> "pa.Schema":
    """Times are in UTC, and texts have 32-bit offsets, as in Spark's own batches."""
    check()
    return to_arrow_schema(schema, timezone="UTC", prefers_large_types=False)


def spark_schema(schema: "pa.Schema") -> "StructType":
    check()
    return from_arrow_schema(schema)


def check() -> None:
    names = ("schema", "timezone", "prefers_large_types")
    PYSPARK.check_parameters("to_arrow_schema", to_arrow_schema, *names)
    PYSPARK.check_parameters("from_arrow_schema", from_arrow_schema, "arrow_schema")
