"""What an operator, or the console, can ask of a running broker through its control socket.

One desk for each kind of thing, with a handler for each command. Answers are plain data, and none
takes the event loop for longer than a few milliseconds: lists are walked through in small steps,
the log is read and topics are counted by threads.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from headwater.admin.apps import AppDesk
from headwater.admin.connections import ConnectionDesk
from headwater.admin.messages import MessageDesk
from headwater.admin.overview import OverviewDesk
from headwater.admin.pipelines import Board
from headwater.admin.queues import QueueDesk
from headwater.admin.topics import TopicDesk
from headwater.control import Handler

__all__ = [
    "AppDesk",
    "ConnectionDesk",
    "MessageDesk",
    "OverviewDesk",
    "PipelineDesk",
    "QueueDesk",
    "TopicDesk",
    "handlers",
]


class Desk(Protocol):
    def handlers(self) -> dict[str, Handler]: ...


class PipelineDesk:
    def __init__(self, board: Board) -> None:
        self._board = board

    def handlers(self) -> dict[str, Handler]:
        return {"pipelines.list": self.reports}

    async def reports(self) -> list[dict[str, Any]]:
        return [report.as_dict() for report in self._board.reports()]


def handlers(desks: Sequence[Desk]) -> Mapping[str, Handler]:
    return {name: handler for desk in desks for name, handler in desk.handlers().items()}
