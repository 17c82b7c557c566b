"""The benchmark: the same messages against this broker and its peers, in turn, in one run.

Reading order:

    scale.py        how much of everything, from a full run to a test's few seconds
    figures.py      what a measurement is
    wire/           one module per protocol: the bytes that are replayed
    load/           what the load processes do
    crew.py         how they are started and kept in step
    brokers.py      how servers are started, watched and stopped
    scenarios/      one file per question asked
    runner.py       the order: every broker in turn, then all of them again
    targets.py      the ratios to reach
    report.py       tables for people, Markdown and JSON for files
    check/          the hot paths alone, against an earlier commit (`make bench-check`)

The load has to be far cheaper than the brokers, or it would measure itself: everything it sends is
encoded before the clock starts, and what it receives is counted, not parsed. A short warm-up on
the same connections is parsed and compared, so that what is counted is known to be right.
"""
