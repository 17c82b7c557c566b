"""A disk that does what disks do at the worst moment.

shim.c, shim.py   between a broker and its files: records what it does to them, and lets it fail
trace.py          the record, as operations
crash.py          the files that a crash of the machine can leave behind, at any of them
"""
