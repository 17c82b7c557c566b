"""`format("headwater")`: Spark looks for a `DefaultSource` in packages named `pyspark_…`."""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from headwater.spark.daemon import quieten
from headwater.spark.options import SinkOptions, SourceOptions, parse
from headwater.spark.sink import BatchWriter, StreamWriter
from headwater.spark.source import BatchReader, StreamReader, schema

quieten()


class DefaultSource(DataSource):
    """Reads and writes the log of a broker. The options are in headwater/spark/options.py."""

    @classmethod
    def name(cls) -> str:
        return "headwater"

    def schema(self) -> StructType:
        return schema(parse(SourceOptions, self.options))

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(parse(SourceOptions, self.options), schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(parse(SourceOptions, self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(parse(SinkOptions, self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return StreamWriter(parse(SinkOptions, self.options), schema, overwrite)
