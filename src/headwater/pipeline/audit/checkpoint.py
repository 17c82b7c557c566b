"""The progress of a query, as Spark notes it in its checkpoint.

offsets/12   where the source was at the end of batch 12, written before it begins
commits/12   batch 12 is finished: all tables have their rows of it
"""

import json
from pathlib import Path


def finished_end(checkpoint: Path) -> int | None:
    """Behind the last offset of the last batch that is finished; None if there is no checkpoint."""
    commits = checkpoint / "commits"
    if not checkpoint.is_dir():
        return None
    numbers = [int(each.name) for each in commits.glob("*") if each.name.isdigit()]
    if not numbers:
        return 0
    end: int = json.loads(_last_line(checkpoint / "offsets" / str(max(numbers))))["offset"]
    return end


def _last_line(path: Path) -> str:
    return path.read_text().splitlines()[-1]
