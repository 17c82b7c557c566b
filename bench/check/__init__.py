"""`make bench-check`: what a message costs on the hot paths, against an earlier commit.

    stand.py        a broker and its connections in this process, without sockets
    paths.py        the hot paths: what is sent, and to whom
    measuring.py    CPU time per message, on one core, the best of many short rounds
    before.py       the tree of the commit that is compared with
    __main__.py     measure both in turn, repeat what seems worse, and say it

It is to run beside other work, on machines of unknown speed. So nothing is timed by the clock, and
no other process takes part: bytes go from a codec through peer and broker into a real log, and the
CPU time of this process is what they cost. Figures that were kept from another machine say little,
even in relation to a fixed piece of work: between two machines, such relations have moved by half.
So both trees are measured here, one after the other, again and again. Instructions would be better
to count, but most virtual machines have no counter for them.
"""
