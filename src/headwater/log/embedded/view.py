"""Looking at a log that another process may be writing: no lock, nothing is changed.

What is being written at this moment looks like an unfinished write, and is not shown.
"""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from headwater.errors import LogDamaged, LogError
from headwater.log.embedded import recovery
from headwater.log.embedded import segment as segments
from headwater.log.embedded.file import LogFile
from headwater.log.embedded.lock import identity as identity_of
from headwater.log.embedded.reader import LogReader
from headwater.log.embedded.segment import Segment

#: Told how much of how much is done.
Progress = Callable[[int, int], None]

_ATTEMPTS = 100


class View(LogReader):
    """A log that this process only reads."""

    def __init__(self, directory: Path, found: list[Segment], identity: int) -> None:
        super().__init__(found, identity)
        self._directory = directory

    @classmethod
    def open(cls, directory: Path) -> "View":
        """Look at the log in `directory`. Raises LogError and LogDamaged."""
        identity = identity_of(directory) if directory.is_dir() else None
        if identity is None:
            raise LogError(f"there is no log in {directory}")
        return cls(directory, _find_segments(directory, identity), identity)

    def refresh(self) -> None:
        """Take in what was written since."""
        while True:
            active = self._segments[-1]
            newer = [p for p in segments.files(self._directory) if p > active.path]
            if active.held is not None:
                recovery.extend(active, self.identity)
            if not newer:
                return
            try:
                following = _scan(newer[0], self.identity)
                if following is None:
                    return
                recovery.check_contiguous([active, following])
            except (FileNotFoundError, LogDamaged):
                if active.path.exists():
                    raise
                self._refresh()  # retention has dropped all that is known here
                return
            self._segments = (*self._segments, following)

    def first_timestamp(self) -> int | None:
        """The time of the first record that is not lost."""
        at = self.start
        while at < self.end:
            batches, at = self.read(at, lambda topic: True, 1, self.end)
            if batches:
                return batches[0].timestamp
        return None

    def count_topics(self, progress: Progress) -> Counter[str]:
        """How many messages there are of which topic."""
        counts: Counter[str] = Counter()
        for done, segment in enumerate(self._segments):
            progress(done, len(self._segments))
            counts += self._count(segment)
        progress(len(self._segments), len(self._segments))
        return counts

    def _count(self, segment: Segment) -> Counter[str]:
        counts: Counter[str] = Counter()
        current, opened = self.opened(segment)
        for _, topics in self.count_topics_of(current, opened, 0, len(opened.index)):
            counts.update(topics)
        return counts

    def _refresh(self) -> None:
        self._segments = tuple(_find_segments(self._directory, self.identity))


def _find_segments(directory: Path, identity: int) -> list[Segment]:
    """All segments as they are now."""
    for _ in range(_ATTEMPTS):
        try:
            return _find_segments_once(directory, identity)
        except FileNotFoundError:
            time.sleep(0.001)  # retention has dropped one meanwhile; the others are still there
    raise LogError(f"the segments in {directory} change too quickly to be read")


def _find_segments_once(directory: Path, identity: int) -> list[Segment]:
    paths = segments.files(directory)
    last = _scan(paths[-1], identity) if paths else None
    if paths and last is None:  # being made at this moment
        paths.pop()
        last = _scan(paths[-1], identity) if paths else None
    if last is None:
        raise LogError(f"there is no log in {directory}")
    found = [*recovery.describe_all(paths[:-1], identity, last.base), last]
    recovery.check_contiguous(found)
    return found


def _scan(path: Path, identity: int) -> Segment | None:
    """The last segment as far as it is written; None if it is being made."""
    file = LogFile(path)
    header = segments.read_header(file, identity)
    if isinstance(header, str):
        if file.size < segments.HEADER_BYTES:
            return None
        base = segments.base_of(path) or 0
        raise Segment(path, base, base, file.size, 0, sealed=False).damaged(base, None, header)
    if header.sealed:
        return recovery.describe(path, identity, None)
    active, tail = recovery.scan_active(file, header)
    recovery.check_tail(active, tail, identity)
    return active
