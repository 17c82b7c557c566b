"""Tables on disk: written and committed once, and read back.

    delta.py           a Delta table to write to: append, upsert, overwrite; each batch once
    parquet.py         staged files, and what their footers say for Delta's log
    schemas.py         Spark's schemas as Delta's
    stored.py          a Delta table to read: its files, its rows, its last batches
    delta_source.py    a Delta table as a stream of Spark
    spark_parquet.py   a table of Spark's own file sink, to read
    store.py           the tables of a project, in the format that it has chosen

Rules: delta.py is the only place that adds rows to a table. One commit names all files of a batch,
the query and the number of the batch; a batch that is not newer than the last one of its query is
in the table already. Upkeep and repair change tables through deltalake as well, under `lock_of`.
"""
