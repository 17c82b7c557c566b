"""Users and rules from the command line: a running broker changes them, or else the files are."""

import getpass
from contextlib import suppress
from pathlib import Path
from typing import Any


def do(directory: Path, what: str, **arguments: Any) -> Any:
    from headwater.control import NoBroker, call
    from headwater.identity.book import AccessBook

    # The console says who has asked; here it is whoever may open the socket.
    told = arguments if what in AccessBook.READING else {**arguments, "by": f"{_name()} (command)"}
    try:
        return call(directory, what, **told)
    except NoBroker:
        return AccessBook(directory).actions[what](**arguments)


def _name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a system without names
        return "owner"


def note_export(directory: Path, first: int, end: int, topic: str) -> None:
    """Have it on record that messages are taken out of the log, if a broker keeps one."""
    from headwater.control import NoBroker, call

    by = f"{_name()} (command)"
    with suppress(NoBroker):
        call(directory, "log.exported", first=first, end=end, topic=topic, by=by)
