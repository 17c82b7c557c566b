"""Starts and stops a broker.

server.py   starts all parts in order, drains and stops them
wiring.py   from the configuration to the settings of each part
loop.py     the event loop: uvloop where it is installed
"""
