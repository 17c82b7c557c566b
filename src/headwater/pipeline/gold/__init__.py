"""Gold: ready-made tables about everything that is published.

    condense.py    Arrow batches to few rows, before Spark's state sees them
    source.py      the log as a stream of such rows
    traffic.py     counts, bytes, sizes and delays by minute, topic, protocol and publisher
    sessions.py    who publishes, since when, with which gaps; who has fallen silent
    movers.py      topics that have more or less traffic than usual

Rules that hold here:

- Time is arrival time, which never goes back in the log: nothing is late, nothing is dropped.
- Rows are condensed with Arrow before they reach an operator that keeps state. State costs by row.
- Topics under `headwater/` are left out: their messages are about the other topics.
"""

from headwater.pipeline.gold import movers, sessions, traffic

__all__ = ["movers", "sessions", "traffic"]
