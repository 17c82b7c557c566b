"""The log against a list: whatever is done in whatever order, the two agree."""

from contextlib import ExitStack

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater.log.embedded.store import LogStore
from headwater.log.embedded.verify import verify
from headwater.log.embedded.view import View
from headwater.message import Run
from tests.log.helpers import (
    START_TIME,
    Message,
    append,
    contents,
    memory_directory,
    messages,
    read_batches,
    rest,
    runs,
)

TOPICS = ("a", "b", "c/d")


class LogAgainstList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files = ExitStack()
        self.directory = self.files.enter_context(memory_directory())
        self.store = LogStore.open(self.directory, segment_bytes=4_000)
        self.model: list[Message] = []
        self.start = 0

    def teardown(self) -> None:
        self.store.close()
        self.files.close()

    def retained(self) -> list[Message]:
        return [m for m in self.model if m.offset >= self.start]

    @rule(some=st.lists(runs(st.sampled_from(TOPICS)), min_size=1, max_size=5))
    def append(self, some: list[Run]) -> None:
        self.model += messages(append(self.store, *some))

    @rule()
    def sync(self) -> None:
        self.store.sync()

    @rule(number=st.integers(0, 3))
    def seal(self, number: int) -> None:
        for segment in self.store.unsealed()[number : number + 1]:
            self.store.seal(segment, rest)

    @rule(segment_bytes=st.sampled_from([1, 2_000, 4_000, 20_000]))
    def reopen(self, segment_bytes: int) -> None:
        self.store.close()
        self.store = LogStore.open(self.directory, segment_bytes)
        assert self.store.torn == 0

    @rule(keep=st.floats(0.5, 1))
    def retain_bytes(self, keep: float) -> None:
        limit = int(self.store.size * keep)
        self.dropped(self.store.retain(limit, None))
        assert self.store.size <= limit or len(self.store.segments) == 1

    @rule(data=st.data())
    def retain_age(self, data: st.DataObject) -> None:
        last = self.store.last_timestamp
        oldest = data.draw(st.integers(START_TIME, max(last, START_TIME)))
        before = self.retained()
        self.dropped(self.store.retain(None, oldest))
        gone = before[: len(before) - len(self.retained())]
        assert all(m.timestamp < oldest for m in gone)

    def dropped(self, dropped: tuple[int, int] | None) -> None:
        if dropped is not None:
            assert dropped[0] == self.start
            self.start = dropped[1]

    @rule(
        data=st.data(),
        wanted=st.sets(st.sampled_from(TOPICS), min_size=1),
        max_bytes=st.integers(1, 3_000),
    )
    def read(self, data: st.DataObject, wanted: set[str], max_bytes: int) -> None:
        offset = data.draw(st.integers(0, self.store.end))
        end = data.draw(st.integers(offset, self.store.end))
        got = messages(read_batches(self.store, offset, end, wanted.__contains__, max_bytes))
        assert got == [m for m in self.retained() if offset <= m.offset < end and m.topic in wanted]

    @rule(data=st.data())
    def find_a_time(self, data: st.DataObject) -> None:
        last = self.store.last_timestamp
        timestamp = data.draw(st.integers(START_TIME - 1, max(last, START_TIME) + 1))
        later = [m.offset for m in self.retained() if m.timestamp >= timestamp]
        assert self.store.offset_at(timestamp) == (later[0] if later else self.store.end)

    @rule()
    def look_without_the_lock(self) -> None:
        view = View.open(self.directory)
        assert contents(view, view.start) == self.retained()
        assert view.count_topics(lambda done, total: None).total() == len(self.retained())

    @rule()
    def check(self) -> None:
        for report in verify(self.directory):
            assert (report.damage, report.torn) == ([], 0)

    @invariant()
    def ends_agree(self) -> None:
        assert (self.store.start, self.store.end) == (self.start, len(self.model))
        *full, active = self.store.segments
        assert all(segment.path.stat().st_size == segment.size for segment in full)
        assert active.path.stat().st_size >= active.size  # there may be room behind it


TestLogAgainstList = pytest.mark.property(LogAgainstList.TestCase)
LogAgainstList.TestCase.settings = settings(stateful_step_count=30)
