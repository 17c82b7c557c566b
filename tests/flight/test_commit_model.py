"""Commits over Flight against a simple model: whatever fails in between, every batch that was
committed is in the log once, whole and in order."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from headwater.actions import ANONYMOUS
from headwater.broker.broker import Broker
from headwater.errors import LogUnavailable, Refusal
from headwater.flight import appending, requests
from headwater.flight.entrance import Caller
from headwater.flight.service import FlightService, FlightSettings
from headwater.flight.stages import StagedRows, Stages
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.message import Batch, Group, Run
from headwater.rights import Principal, Rights, everything
from headwater.slowing import Slowdowns
from headwater.traffic import Traffic
from tests.broker.client import Client, settle
from tests.broker.model import BrokerModel, short
from tests.flight.client import rows

Rows = list[tuple[str, bytes]]

RIGHTS = everything()
NO_RIGHTS = Rights(Principal(ANONYMOUS))  # whose queries are called as the owner's
CALLER = Caller(RIGHTS, "192.0.2.1:5000", lambda: False)


class Crash(OSError):
    """The process ended here."""


class CrashingStages(Stages):
    """Ends the process before or behind a step."""

    at = ""

    def begin(self, commit: requests.Commit, end: int) -> Any:
        self._reach("before the intent")
        begun = super().begin(commit, end)
        self._reach("behind the intent")
        return begun

    def finish(self, intent: Any, first: int, count: int) -> None:
        self._reach("before the end")
        super().finish(intent, first, count)
        self._reach("behind the end")

    def rows(self, files: tuple[Path, ...]) -> StagedRows:
        self._reach("while staged rows are read")
        return super().rows(files)

    def _reach(self, place: str) -> None:
        if place == self.at:
            self.at = ""
            raise Crash(5, place)


BETWEEN = "between the first and the second piece"
PLACES = (
    "before the intent",
    "behind the intent",
    "while staged rows are read",
    BETWEEN,
    "before the end",
    "behind the end",
)


#: Which piece the log refuses, by what is said of it.
REFUSED = {"refused": 1, "refused in part": 2}


@pytest.fixture(autouse=True, scope="module")
def pieces_of_one_run() -> Iterator[None]:
    """So that a batch has several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(appending, "PIECE_BYTES", 1)
        yield


class RefusingBroker(Broker):
    """Takes no rows when told so, as with a full disk; or the process ends there."""

    #: The piece at which that happens, counted from the next one.
    refused = crashing = 0

    def publish_all(self, group: Group) -> Sequence[Batch]:
        self.refused -= 1
        self.crashing -= 1
        if not self.refused:
            raise LogUnavailable("the disk is full")
        if not self.crashing:
            raise Crash(5, BETWEEN)
        return super().publish_all(group)


class CommitModel(BrokerModel):
    @initialize()
    def start(self) -> None:
        self.batch = 0
        self.staged: Rows | None = None  # of the batch that comes next
        self.expected: Rows = []
        self.begin()

    async def _open(self) -> None:
        self.engine = await EmbeddedEngine.open(self.directory, LogSettings(sync="os"))
        self.broker = RefusingBroker(self.engine)
        self.flight = FlightService(
            broker=self.broker,
            data=self.directory,
            settings=FlightSettings(host="127.0.0.1", port=0),
            report=lambda name, state: None,
            exported=lambda who, about: None,
            traffic=Traffic(),
            slowdowns=Slowdowns(),
            admit=lambda token, certified, address: RIGHTS,
        )
        self.stages = CrashingStages(self.directory)
        self.flight._stages = self.flight._appender._stages = self.stages
        await self.flight.recover()
        await self.broker.recall()

    async def _close(self) -> None:
        self.broker.close()
        await self.engine.close()

    # Spark stages a batch anew only if it has not begun to commit it.
    @precondition(lambda self: not self.stages.intents())
    @rule(sizes=st.lists(st.sampled_from((3, 2, 1, 0)), min_size=1, max_size=3))
    def stage(self, sizes: list[int]) -> None:
        """Once, or again in place of what was staged before and never committed."""
        if self.staged is None:
            self.batch += 1
        number = 0
        self.staged = []
        self.parts = {}
        for partition, size in enumerate(sizes):
            part = [(f"t{n % 2}", b"%d.%d" % (self.batch, number + n)) for n in range(size)]
            number += size
            self.staged += part
            self.parts[str(partition)] = "x"
            request = requests.Stage("q", self.batch, partition, "x")
            self.wait(asyncio.to_thread(self.flight.stage, request, CALLER, iter([rows(*part)])))

    @precondition(lambda self: self.staged is not None)
    @rule(place=st.sampled_from((*PLACES, *REFUSED, "forbidden", "", "")))
    def commit(self, place: str) -> None:
        """It succeeds, or the process ends somewhere on the way, or the log refuses, or whoever
        commits may not publish any more."""
        self.broker.refused = REFUSED.get(place, 0)
        self.broker.crashing = 2 if place == BETWEEN else 0
        self.stages.at = place
        request = requests.Commit("q", self.batch, self.parts)
        try:
            rights = NO_RIGHTS if place == "forbidden" else RIGHTS
            self.wait(asyncio.to_thread(self.flight.commit, request, rights))
        except Crash:
            self.restart()
        except LogUnavailable:
            assert place in REFUSED
            return
        except Refusal:
            assert place == "forbidden" and not self.stages.intents()
            return
        self.broker.refused = self.broker.crashing = 0
        self._note_committed()

    def _note_committed(self) -> None:
        done = self.stages.committed("q")
        if self.staged is not None and done is not None and done.batch == self.batch:
            self.expected += self.staged
            self.staged = None

    @precondition(lambda self: self.staged is None and self.batch)
    @rule()
    def commit_again(self) -> None:
        """A repeat of a commit is answered, and nothing happens."""
        request = requests.Commit("q", self.batch, self.parts)
        answer = self.wait(asyncio.to_thread(self.flight.commit, request, RIGHTS))
        assert answer["repeated"]

    @rule()
    def others_publish(self) -> None:
        """One of them under the name of the query's rows."""

        async def work() -> None:
            client = Client(self.broker)
            client.publish("other", b"x")
            run = Run("other", [b"y"], protocol="test", publisher=f"q/{self.batch}")
            self.broker.publish_all(self.broker.prepare([run]))
            await settle(self.broker)
            client.leave()

        self.wait(work())

    @rule()
    def restart(self) -> None:
        """Which finishes a commit that was begun."""
        super().restart()
        self._note_committed()

    async def _check(self) -> None:
        found: Rows = []
        at = 0
        while at < self.engine.watermark:
            batches, at = await self.engine.read(at, lambda topic: topic != "other", 1 << 20)
            for batch in batches:
                found += [(batch.run.topic, payload) for payload in batch.run.payloads]
        # What was interrupted may be there, too, or the first rows of it: the next commit finds it.
        begun = found[len(self.expected) :]
        assert found == self.expected + (self.staged or [])[: len(begun)]
        assert not begun or self.stages.intents()


@pytest.mark.parametrize("place", ["", *REFUSED, "forbidden", *PLACES])
@pytest.mark.parametrize("sizes", [[1], [2, 0, 3]])
def test_every_place_where_a_commit_can_end(place: str, sizes: list[int]) -> None:
    """The model, led by hand: its own choices may leave a place out."""
    model = CommitModel()
    model.start()
    for _ in range(2):
        model.others_publish()
        model.stage(sizes=sizes)
        model.commit(place=place)
        model.others_publish()
        if model.staged is not None:
            model.commit(place="")
        model.commit_again()
    assert len(model.expected) == 2 * sum(sizes)
    model.restart()
    model.teardown()


TestCommits = pytest.mark.property(CommitModel.TestCase)
TestCommits.settings = short(1, steps=20)
