"""Reports the state of a pipeline once a second: to a file, to the broker, and to a view.

The broker keeps the last report for its console. Without a broker, only the console lacks it.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headwater.errors import HeadwaterError
from headwater.pipeline.care.background import Background
from headwater.pipeline.project.project import Project
from headwater.pipeline.run import state as states
from headwater.spark.flight_client import FlightClient

EVERY = 1.0
#: Shows a state to a person, or prints it.
View = Callable[[dict[str, Any]], None]


class Reporter(Background):
    """A thread that reports the state as long as the `with` lasts."""

    join_seconds = 30.0  # for the last report, which says how everything has ended

    def __init__(
        self, project: Project, broker: FlightClient, look: Callable[[], dict[str, Any]], view: View
    ) -> None:
        self._project, self._look, self._view = project, look, view
        # A report that does not arrive is not worth waiting for.
        self._broker = replace(broker, retries=0, interval=0.0)
        super().__init__("report")

    def _run(self) -> None:
        while not self._stopping.wait(EVERY):
            self._tell()
        self._tell()

    def _tell(self) -> None:
        with contextlib.suppress(Exception):  # a report that fails must not stop the pipeline
            state = self._look()
            states.save(self._project.state, state)
            self._view(state)
            with contextlib.suppress(HeadwaterError):
                self._broker.report(self._project.name, state)
