"""Topics, subscriptions, positions and queues. The broker knows no protocol and no socket.

broker.py       a run of messages gets its offsets and goes to everyone who wants it
peer.py         what a connection may ask of the broker: one handler for each command
router.py       the subscriptions that a topic reaches
cursor.py       a position in the log, and the way to go on from there
subscriber.py   the cursor of a connection
queues/         messages that have to be acknowledged
repeats.py      messages that are stored once although they come again
"""
