"""Schemas of Spark as Arrow's, borrowed from PySpark. No Spark is started."""

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from headwater.errors import HeadwaterError
from headwater.spark import arrow_schemas

SPARK = StructType(
    [
        StructField("n", LongType()),
        StructField("text", StringType()),
        StructField("at", TimestampType()),
    ]
)
ARROW = pa.schema([("n", pa.int64()), ("text", pa.string()), ("at", pa.timestamp("us", "UTC"))])


def test_pyspark_is_as_we_know_it() -> None:
    arrow_schemas.check()


def test_there_and_back() -> None:
    assert arrow_schemas.arrow_schema(SPARK) == ARROW
    assert arrow_schemas.spark_schema(ARROW) == SPARK


def test_another_signature_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_schemas, "to_arrow_schema", lambda schema: schema)
    with pytest.raises(HeadwaterError, match=r"has no parameter timezone; install pyspark==4\."):
        arrow_schemas.arrow_schema(SPARK)
