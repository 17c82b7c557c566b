"""Clients of all five protocols and of Flight at once, whatever happens to the broker.

accounts.py      what they know: what was sent, acknowledged, received and committed, and when
publishers.py    a publisher of each protocol, and two of Flight, whose batches count once
subscribers.py   a durable subscriber, consumers of two queues, and readers of the other kinds
crowd.py         all of them, in a thread of their own
kill.py          the broker is killed meanwhile, again and again
checks.py        whether a log and its positions agree with what clients know
"""
