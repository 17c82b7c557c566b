"""The console: a web page and an API to see the broker and to act on it, in a process of its own.

supervisor.py    the broker's side: starts the process, and starts it again when it dies
__main__.py      the process: an HTTP server that knows the broker by its control socket only
control_link.py  asks the broker; equal questions within a second are asked once
app.py           puts the parts together; routes/ has the API, live.py the streams of events
dependencies.py  what the routes share
access.py        who may do what; guard.py keeps other sites and hosts out
static/          the page, which uses nothing but the API
"""
