"""What a long torture has found, as a section of a page in markdown."""

import time
from pathlib import Path

from torture.verdict import Verdict


class Report:
    """Made when it begins."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def append(self, file: Path, verdict: Verdict) -> None:
        rows = {
            "result": "good" if verdict.good else "BAD",
            "minutes": f"{self.seconds() / 60:.1f}",
            **{what: f"{count:,}" for what, count in verdict.harm.items()},
            **{
                what: f"{getattr(verdict, what):,}"
                for what in ("sent", "acknowledged", "lost", "twice")
            },
        }
        lines = [f"## {self._name}", "", "| what | |", "| --- | --- |"]
        lines += [f"| {what} | {value} |" for what, value in rows.items()]
        lines += ["", *(f"- {fault}" for fault in verdict.faults), ""]
        with file.open("a") as out:
            out.write("\n".join(lines))
