"""A small world to look at: clients of all five protocols, with what happens in real ones.

records.py    what they say: readings, orders, chat, game events, and some that are wrong
clients.py    who says it: one client per protocol, or a few
broker.py     a broker of its own, on the usual ports where they are free
"""
