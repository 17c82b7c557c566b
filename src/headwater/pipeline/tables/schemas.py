"""Schemas of Spark, as Delta has them."""

import json
from typing import TYPE_CHECKING, Any

from deltalake import Schema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType


def delta_schema(schema: "StructType") -> Schema:
    """Spark and Delta write schemas in the same way. Every column may be null: old files may lack
    those that came later."""
    return Schema.from_json(json.dumps(_nullable(schema.jsonValue())))


def _nullable(node: Any) -> Any:
    if isinstance(node, list):
        return [_nullable(each) for each in node]
    if not isinstance(node, dict):
        return node
    loose = ("nullable", "containsNull", "valueContainsNull")
    return {key: True if key in loose else _nullable(value) for key, value in node.items()}


def same_type(known: "StructField", given: "StructField") -> bool:
    def shape(kind: "DataType") -> Any:
        return _nullable(json.loads(kind.json()))

    return bool(shape(known.dataType) == shape(given.dataType))
