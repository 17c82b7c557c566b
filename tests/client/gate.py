"""A gate that knows apps, for brokers that are put together by hand."""

from pathlib import Path

from headwater.gate import KnownApp
from headwater.identity.book import AccessBook
from headwater.identity.gatekeeper import Gatekeeper


def gate_of(data: Path, apps: dict[str, KnownApp]) -> Gatekeeper:
    book = AccessBook(data)
    return Gatekeeper(book.users, book.rules, apps)
