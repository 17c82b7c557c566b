"""Bronze: every record of the log, once, as it came."""

from pyspark import pipelines as dp

from headwater.pipeline import bronze as source


@dp.table(
    partition_cols=source.PARTITION_COLUMNS,
    table_properties={
        "headwater.complete": "true",  # a missing offset was lost to retention, and is noted
        # "headwater.retention": "90d",
    },
)
@source.direct  # the tasks that read the log write the files; remove it if you change the rows
def bronze():
    return source.frame()
