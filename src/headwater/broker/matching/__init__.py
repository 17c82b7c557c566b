"""Which subscriptions a topic reaches, when filters have to be asked one by one.

patterns.py   the filters that have to be asked, and what they have said of which topics
matcher.py    a program beside the broker that is asked where an answer may take long
program.py    that program
"""
