"""How fast Spark reads and writes the log: `make bench-spark`, on a real broker and a real Spark.

    source       from the log to nowhere, against the same records in Parquet files
    sink         rows made durable in the broker
    latency      from a publisher to a sink in Python
    catching up  a long log, while the broker takes more
    beside       what a protocol's clients notice of someone who reads the log over Flight

`stand.py` has the broker and Spark, `load.py` and `delays.py` what runs in other processes,
`measures.py` one function for each line above.
"""
