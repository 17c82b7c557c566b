"""Task files: the tasks that read the log write the files of a table, and the driver commits them.

Rows that pass from Python's tasks through Java to Spark's own writer cost several times as much as
everything else. Bronze and the contracts' tables avoid that way:

    declare.py   A table function is a stream of rows, which any runner of Spark can run. It may
                 also declare `TaskFiles`: the same table as a stream of files.
    write.py     Each task reads a part of the log, makes rows of it with Arrow, and writes them as
                 Parquet below <tables>/<table>/_staging/<attempt>/. It gives Spark one row for each
                 file: the table, the path, and the keys of the file's rows.
    collect.py   The driver runs the micro-batch, collects the rows about files, and leaves repeated
                 keys out of them.
    commit       run/queries.py hands the files to tables/delta.py, which moves them into their
                 tables and names them in one Delta commit for each table.

Rules: only the files of attempts that Spark counts are collected; upkeep removes the others.
A record with a field that has no column yet stops the writing: its task reports the new field
instead of a file, the driver adds the column, and the micro-batch runs again.
write.py runs in tasks, each in a process that imports it: it imports no more than it needs.
"""
