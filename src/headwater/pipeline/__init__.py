"""The data pipeline: topics become tables, on Spark.

Each room has its story in its docstring. From the bottom to the top:

    project/       a project on disk: spark-pipeline.yml, its settings, the template of a new one
    tables/        Delta tables: staged files, commits, and reading them back
    taskfiles/     the tasks that read the log write the files, and the driver commits them
    bronze.py      every record of the log
    contracts/     records that fit a contract become typed rows; the others are kept apart
    gold/          traffic, sessions and movers, ready-made
    publish.py     rows of a table become messages as well
    definitions/   a project's files become a graph of tables
    care/          compaction, retention, and the removal of old files
    run/           a project runs: continuously, once, or on a Spark Connect server
    repair/        backfill, redrive and replay
    audit/         proof that the tables equal the log

A record takes this way: spark/source.py reads it in a task, bronze.py or contracts/judge.py makes a
row of it, taskfiles/write.py writes the row to a file, taskfiles/collect.py collects the file,
tables/delta.py commits it, and run/queries.py notes the commit in the table `audit`.

Rules: a room imports only the rooms that tests/test_layers.py lists for it. The broker imports
nothing of the pipeline. A restart needs tables, checkpoints and the files under `state/` only.
"""
