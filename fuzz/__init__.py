"""`make fuzz`: very many inputs for everything that reads bytes of strangers.

    branches.py     which branches of the broker's code an input takes: written into its source
                    when it is imported
    mutation.py     new inputs, made from those that found something
    corpus.py       the inputs that are kept in the repository, and how few of them are enough
    stand.py        a whole broker in this process, and connections to it without sockets
    targets/        what is given inputs: sessions, the console, the control socket, Flight
    campaign.py     one target: inputs, what they find, how long they take, what memory is left
    worker.py       the process that a campaign is in
    processes.py    starts these, and knows the last input of one that crashed or hangs (pulse.py)
    outcome.py      what is to be done and what came of it, between the two; findings.py
    report.py       the figures, for the terminal and as Markdown
    __main__.py     options

An input is one byte string for a fresh connection, or for one that has just had its handshake. The
broker behind it is the real one, with its log on the disk: commands are carried out, and what is
published goes to subscribers of all protocols.
"""
