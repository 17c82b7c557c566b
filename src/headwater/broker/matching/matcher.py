"""Asks a program beside the broker whether patterns match topics.

PCRE keeps the interpreter lock while it matches, and nothing can interrupt it. So what is not known
to be quick is matched by another process, one question at a time, while the broker goes on. The
next question is of the pattern that has cost the least. A pattern that takes too long for one
topic, or too much altogether, is refused, and the process is started anew if it has to be.
"""

import asyncio
import json
import logging
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush, heapreplace

logger = logging.getLogger(__name__)

# A pattern that takes more processor time than this for a single topic is refused.
LONGEST_SECONDS = 0.1
# So is one that has taken more than this altogether, and more than a fiftieth of the time since.
BUDGET_SECONDS = 2.0
BUDGET_SHARE = 0.02
# It cannot be subscribed with again for so long.
REFUSED_SECONDS = 600.0
MOST_REFUSED = 1024
# Who does not answer for so long never will.
PATIENCE_SECONDS = 5.0
START_SECONDS = 30.0
MODULE = "headwater.broker.matching.program"

#: Hears of a topic whether it matches.
Answer = Callable[[str, bool], None]


class _Case:
    """A pattern, and what is asked about it. There may be very many topics, so nothing more is kept
    of a question."""

    __slots__ = ("answer", "pattern", "questions", "refused", "since", "spent")

    def __init__(
        self, pattern: str, answer: Answer, refused: Callable[[], None], since: float
    ) -> None:
        self.pattern = pattern
        self.answer = answer
        self.refused = refused
        self.questions: deque[str] = deque()
        self.since = since
        self.spent = 0.0

    def __lt__(self, other: "_Case") -> bool:
        return self.spent < other.spent

    def affordable(self, now: float) -> bool:
        return self.spent <= BUDGET_SECONDS + BUDGET_SHARE * (now - self.since)


class Matcher:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        #: How many questions were asked, and how many patterns refused.
        self.asked = self.refused = 0
        self._cases: dict[str, _Case] = {}
        self._waiting: list[_Case] = []  # a heap: the one that has cost least is the first
        self._refused: dict[str, float] = {}  # until when
        self._working: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None

    def ask(self, pattern: str, topic: str, answer: Answer, refused: Callable[[], None]) -> None:
        """Later, in the loop, `answer` is called for the topic, or `refused` once for the pattern.
        Those of the first question hold for all of a pattern."""
        self.asked += 1
        case = self._cases.get(pattern)
        if case is None:
            case = _Case(pattern, answer, refused, self._loop.time())
            self._cases[pattern] = case
        case.questions.append(topic)
        if len(case.questions) == 1:
            heappush(self._waiting, case)
        if self._working is None:
            self._working = self._loop.create_task(self._work())

    def has_refused(self, pattern: str) -> bool:
        """Lately."""
        return self._loop.time() < self._refused.get(pattern, 0.0)

    def forget(self, pattern: str) -> None:
        """Nobody subscribes with it any more."""
        if (case := self._cases.pop(pattern, None)) is not None:
            case.questions.clear()

    async def close(self) -> None:
        if self._working is not None:
            self._working.cancel()
        await self._kill()

    async def _work(self) -> None:
        try:
            while self._waiting:
                case = self._waiting[0]
                if not case.questions:  # it was forgotten
                    heappop(self._waiting)
                    continue
                topic = case.questions[0]
                found = await self._match(case, topic)
                if found is None or not case.affordable(self._loop.time()):
                    self._refuse(case)
                elif case.questions:
                    case.questions.popleft()
                    heapreplace(self._waiting, case)
                    case.answer(topic, found)
        finally:
            self._working = None

    def _refuse(self, case: _Case) -> None:
        self.refused += 1
        logger.warning("a pattern takes too long and is refused: %.200s", case.pattern)
        if len(self._refused) >= MOST_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._refused[case.pattern] = self._loop.time() + REFUSED_SECONDS
        self.forget(case.pattern)
        case.refused()

    async def _match(self, case: _Case, topic: str) -> bool | None:
        """None: it takes too long, or cannot be told."""
        try:
            process = await self._running()
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps([case.pattern, topic]).encode() + b"\n")
            async with asyncio.timeout(PATIENCE_SECONDS):
                found, seconds = (await process.stdout.readline()).split()
        except (TimeoutError, OSError, ValueError):
            await self._kill()
            return None
        case.spent += float(seconds)
        return found == b"1" if float(seconds) <= LONGEST_SECONDS else None

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        pipe = asyncio.subprocess.PIPE
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", MODULE, stdin=pipe, stdout=pipe
        )
        assert process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            await process.stdout.readline()
        return process

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
