"""Care of tables: few large files, no rows beyond their retention, no files that nobody reads.

    upkeep.py       compacts and cleans tables, on a schedule while a pipeline runs, or on request
    retention.py    deletes rows that are too old, and notes the first offset that the table keeps
    background.py   a thread that lasts as long as a `with`

Rules: each step is one commit and may happen while rows are added. A failure with one table does
not keep the others from being cared for.
"""
