"""Materialized views: computed again when a table that they read has changed."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from headwater.pipeline.definitions.graph import (
    Graph,
    Node,
    OutputKind,
    call_definition,
    describe_error,
)
from headwater.pipeline.definitions.names import Names
from headwater.pipeline.run.state import PipelineState
from headwater.pipeline.tables.delta import CommitResult
from headwater.pipeline.tables.store import TableStore
from headwater.units import parse_duration

#: How often a view is computed anew, unless its property headwater.trigger says otherwise.
DEFAULT_SECONDS = 5.0
_FILE = "views.json"

Versions = dict[str, int]


def seconds_of(text: str) -> float:
    """From "5 seconds", as Spark writes it, or "5s"."""
    words = text.split()
    if len(words) == 2 and words[1].rstrip("s") in ("second", "minute", "hour", "day"):
        return parse_duration(f"{words[0]}{words[1][0]}")
    return parse_duration(text)


class Views:
    """The views of a graph, in the order in which they depend on each other."""

    def __init__(
        self,
        graph: Graph,
        names: Names,
        store: TableStore,
        state: PipelineState,
        directory: Path,
        log_end: Callable[[], int],
    ) -> None:
        self._nodes = graph.of(OutputKind.VIEW)
        self._names, self._store, self._state = names, store, state
        self._file, self._log_end = directory / _FILE, log_end
        self._seen: dict[str, Versions] = self._load()
        self._inputs: dict[str, frozenset[str]] = {}
        self._next = dict.fromkeys((node.name for node in self._nodes), 0.0)

    @property
    def names(self) -> list[str]:
        return [node.name for node in self._nodes]

    def forget(self, names: list[str]) -> None:
        """Compute these views again, even if nothing has changed."""
        for name in names:
            self._seen.pop(name, None)

    def refresh(self, at_once: bool = False) -> None:
        """Compute those that are out of date; not more often than they want, unless `at_once`."""
        for node in self._ordered():
            if at_once or time.monotonic() >= self._next[node.name]:
                self._refresh(node)
                every = node.properties.get("headwater.trigger")
                pause = seconds_of(every) if every else DEFAULT_SECONDS
                self._next[node.name] = time.monotonic() + pause

    def _refresh(self, node: Node) -> None:
        try:
            seen = self._seen.get(node.name)
            if seen is not None and seen == self._versions(frozenset(seen) - {""}):
                return
            self._state.set([node.name], state="running")
            self._compute(node)
            self._state.set([node.name], state="waiting", error=None)
        except Exception as error:  # one view does not stop the others
            self._state.set([node.name], state="failed", error=describe_error(error))

    def _compute(self, node: Node) -> None:
        flow = node.flows[0]
        file = Path(flow.source_code_location.filename).name
        found = call_definition(file, lambda: self._names.evaluate(flow.func))
        self._inputs[node.name] = found.inputs
        versions = self._versions(found.inputs)
        if self._store.ours:
            written = self._store.table(node.name).overwrite(found.frame, node.partition_by)
        else:
            writer = found.frame.write.format(self._store.format).mode("overwrite")
            writer.partitionBy(*node.partition_by).save(str(self._store.path(node.name)))
            written = CommitResult()
        self._state.wrote(node.name, (self._state.get(node.name).batch or 0) + 1, written, True)
        self._seen[node.name] = versions
        self._save()

    def _versions(self, inputs: frozenset[str]) -> Versions:
        """The versions of the tables that a view reads; of the log if it reads no table."""
        tables = {name: self._store.version(name) for name in sorted(inputs)}
        return tables or {"": self._log_end()}

    def _ordered(self) -> list[Node]:
        """Each behind the views that it reads, as far as that is known."""
        mine = set(self.names)
        done: list[Node] = []
        left = list(self._nodes)
        while left:
            placed = {node.name for node in done}
            ready = [
                node
                for node in left
                if not (self._inputs.get(node.name, frozenset()) & mine) - placed - {node.name}
            ]
            done += ready or left
            left = [node for node in left if node not in done]
        return done

    def _load(self) -> dict[str, Versions]:
        try:
            found: dict[str, Versions] = json.loads(self._file.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return found

    def _save(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self._seen))
