"""The rows of a table straight from its files, for those who filter them.

deltalake's own dataset takes a column without bounds in Delta's log for one that has no values, and
a filter on it then finds nothing. Here the footers of the files say what may be left out.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from headwater.pipeline.delta import files_of


def dataset_of(delta: DeltaTable, path: Path) -> Any:
    """The rows of this version of a table. Columns that a file lacks are null."""
    schema = pa.schema(delta.schema())
    levels = [schema.field(name) for name in delta.metadata().partition_columns]
    return ds.dataset(
        [str(each.path) for each in files_of(delta, path)],
        schema=schema,
        format="parquet",
        partitioning=ds.partitioning(pa.schema(levels), flavor="hive"),
        partition_base_dir=str(path),
    )
