"""Hard tests that take long: `make torture`. A short form of each runs with the tests.

Each ends with a verdict (verdict.py): what was sent, acknowledged, found, lost, and there twice.

    cycles.py     one broker, one kind of harm, chosen by a seed; seeds.toml lists those to run
    kill.py       the broker is killed under load (load.py)
    threads.py    a thread of its log ends, under the same load
    queues.py     the broker is killed while queues are at work (accounts.py)
    pairs.py      two consumers of a queue end at almost the same time
    operators.py  two operators redrive or delete the same dead letters
    reads.py      reads of the log fail, for clients that lag behind (backlog.py, taker.py)
    vanish.py     clients are gone without a word (proxy.py)
    everyone/     clients of all five protocols and of Flight at once; the broker is killed
    boundaries.py the machine crashes, at every operation on the disk (disk/)
    flips.py      files are damaged
    full_disk.py  operations on the disk fail, each of them
    clock.py      the clock jumps
    spark.py, pipeline.py   Spark, pipelines and the broker are killed (driver.py)
"""
