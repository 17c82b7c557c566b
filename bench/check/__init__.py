"""`make bench-check`: what a message costs on the hot paths, against figures that are kept.

    stand.py        a broker and its connections in this process, without sockets
    paths.py        the hot paths: what is sent, and to whom
    measuring.py    CPU time per message, in units that do not depend on the machine
    kept.py         the figures of bench/baseline.toml
    __main__.py     compare, repeat what seems worse, and say it

It is to run beside other work, on machines of unknown speed. So nothing is timed by the clock, and
no other process takes part: bytes go from a codec through peer and broker into a real log, and the
CPU time of this process is what they cost. It is measured many times in short rounds, of which the
best counts, and told in relation to a fixed piece of work between the rounds: where a core is half
as fast, both take twice as long. Instructions would be better to count, but most virtual machines
have no counter for them.
"""
