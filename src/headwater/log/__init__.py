"""The log: one totally ordered sequence of messages.

engine.py     what the rest of the broker needs of a log
record.py     messages as Arrow record batches
embedded/     the log in files of this machine
"""
