"""Intents: a note on disk about the next step, for the run after a kill or a power failure."""

import json
import os
from pathlib import Path
from typing import Any

from headwater.files import sync_directory


def write(file: Path, content: Any) -> None:
    """Replace the file in one step; it is on the disk when this returns."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".new")
    with draft.open("w") as written:
        json.dump(content, written, indent=2)
        written.flush()
        os.fsync(written.fileno())
    draft.rename(file)
    # Its new name, too: the step must not happen before its note is on the disk.
    sync_directory(file.parent)
