"""Sockets, time and byte limits. Nothing else reads or writes a client's bytes.

connection.py   one client: bytes in, commands to its peer, answers and batches out
tcp.py          listeners, and all connections that there are
clock.py        which connections are due for a sign of life
"""
