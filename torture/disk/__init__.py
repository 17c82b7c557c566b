"""A disk that does what disks do at the worst moment.

shim.c, shim.py   between a broker and its files: records what it does to them, lets it fail
recording.py      a broker at work for all kinds of clients, and an operator (administrator.py)
trace.py          the record, as operations; offsets.py finds messages in it
crash.py          the files that a crash of the machine can leave behind, at any operation
opened.py         files opened as by a broker that starts, in this process
failing.py        a small day of a broker's files, in which an operation fails
memory.py         directories that need no disk
"""
