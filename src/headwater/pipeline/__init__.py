"""The data pipeline: topics become tables, on Spark.

    project.py       what a project is: spark-pipeline.yml
    delta.py         tables on disk, written exactly once; stored.py reads them, parquet.py the
                     footers of their files
    plain.py         tables that are plain files
    bronze.py        every record of the log
    contracts/       records that fit a contract become typed rows, the others are kept apart
    gold/            traffic, sessions and movers, ready-made
    graph.py         definitions become a graph of tables; names.py lets them refer to each other
    runner.py        runs the graph, continuously or once
    upkeep.py        few large files instead of many small ones; retention.py: old rows go
    audit/           proves that the tables equal the log

Nothing of the broker imports this.
"""
