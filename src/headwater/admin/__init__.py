"""All that an operator, or the console, can ask of a running broker through its control socket.

One class for each kind of thing, with a handler for each command; `admin.py` puts them together.
Answers are plain data, and none takes the event loop for longer than a few milliseconds: lists are
walked through in small steps, the log is read and topics are counted by threads.

    connections  topics  queues  messages  apps  pipelines    one file for each kind of thing
    overview  alerts  rates                                   the broker at a glance
    taps                                                      messages as they pass by
    paging  uploads                                           long lists and large payloads
"""
