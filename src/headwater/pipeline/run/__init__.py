"""Running a project: its queries are started, supervised, and reported on.

    runner.py     runs all queries of a project in one Spark, continuously or once
    queries.py    one streaming query: from a plan to commits and audit rows
    views.py      materialized views, computed again when the tables they read have changed
    state.py      the state of each table while the pipeline runs
    report.py     sends that state to a file, to the broker and to the terminal every second
    progress.py   the state as bars on a terminal, or as lines of JSON
    status.py     the state of a project that runs or has stopped
    check.py      a dry run: definitions are analysed, and no data is touched
    remote.py     runs a project on a Spark Connect server instead

Rules: one runner per project. A query that fails does not stop the others. Each commit to a table
is followed by one row in the table `audit`, exactly once as well.
"""
