"""Queues: messages that have to be acknowledged, by one consumer or by each of them.

The way of a message that nobody acknowledges, along the files:

    log ──▶ Feed ──▶ Consumer ──▶ Outlet.offer        delivered: the consumer holds it, in a lot
              ▲          │                            with a deadline (feed.py, consumer.py)
              └─ Returned ◀── Queue ◀── its consumer left, or was too slow (queue.py, ledger.py)
                               │
                               └──▶ DeadLetters.bury  after `max_deliveries`: it is published under
                                                      the queue's dead topic (dead.py)
    its topic ◀─────────────────── DeadLetters.redrive

1. A feed is a cursor of the queue. It gives what the log pushes, or what it reads, to the consumers
   that have room, in turns. Each delivery is a lot: offsets, how often they were delivered, and the
   deadline for their acknowledgement. The rest of a piece that was read from the log and found no
   room is kept for the few cursors that read last (../read_ahead.py).
2. An acknowledgement ends the message: it is no longer held, and nothing is kept of it.
3. When a consumer leaves, or the deadline passes, the queue takes the message back. The feed gives
   returned messages first, marked as repeats, oldest first.
4. A message that was delivered `max_deliveries` times goes to the dead letters instead. The queue
   remembers it as open until its dead letter is durable.
5. `redrive` publishes dead letters to their original topics, where the queue finds them like any
   other message; `purge` deletes them from the queue. Both move a position on.

A message that waits too long in a queue that nobody consumes is dropped (backlog.py), where the
queue has a limit. A queue that a client has made and nobody consumes is deleted (unused.py).

A queue owns its feeds and consumers, and calls go one way: queue, feed, consumer, outlet. The way
back is what they return. Only the log can set a feed in motion without the queue, so a feed is
handed one function, by which it reports what it gave to whom.

A queue saves its position and its open messages, held or returned, as the ledger encodes them:
within 100 ms, so after a crash at most the last moments are delivered again.
"""
