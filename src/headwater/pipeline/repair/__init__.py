"""Repair: records are read, judged or published again.

    backfill.py      reads a range of the log again, into a table that lacks some of it
    redrive.py       judges quarantined records again, or publishes them to their topics
    replay.py        publishes a range of the log, or rows of a table, to topics
    replay_rows.py   the rows of a replay, in an order that never changes
    conditions.py    the option --where: conditions in SQL, evaluated by Arrow

Rules: every command may be killed at any moment and run again. It notes on disk what it is about to
do before it does it (project/intents.py), and every commit and every published batch has a name
under which it is taken once.
"""
