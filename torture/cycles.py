"""Cycles: each starts a broker of its own, does one kind of harm to it, and ends with a verdict.

The seed of a cycle chooses its kind, and everything in it that is left to chance, but for what
threads and processes make of their time. `seeds.toml` lists the seeds that `make torture` runs.
"""

import shutil
import tempfile
import time
import tomllib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from random import Random

from torture import kill, operators, pairs, queues, reads, threads, vanish
from torture.verdict import Verdict

SEEDS = Path(__file__).with_name("seeds.toml")
MOST_SEED = 1_000_000

KINDS: dict[str, Callable[[Path, Random], Verdict]] = {
    "kill": kill.cycle,
    "queues": queues.cycle,
    **{error: partial(reads.cycle, error=error) for error in reads.TROUBLES},
    **{thread: partial(threads.cycle, thread=thread) for thread in threads.WORK},
    "operators": partial(operators.cycle, killed=False),
    "operators-and-kill": partial(operators.cycle, killed=True),
    "vanish": partial(vanish.cycle, stuffed=False),
    "vanish-stuffed": partial(vanish.cycle, stuffed=True),
    "pairs": pairs.cycle,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a cycle."""

    seed: int
    kind: str
    seconds: float
    #: None if it came to no end: then `why` is a traceback.
    verdict: Verdict | None
    why: str = ""
    #: What is left of one that went wrong.
    directory: Path | None = None

    @property
    def good(self) -> bool:
        return self.verdict is not None and self.verdict.good

    def __str__(self) -> str:
        about = f"seed {self.seed} ({self.kind}, {self.seconds:.1f} s): "
        if self.good:
            return f"{about}{self.verdict}"
        again = f'again: make torture ARGS="--seed {self.seed}"; its files: {self.directory}'
        return f"{about}BAD\n{self.verdict or self.why}\n{again}"


def kind_of(seed: int) -> str:
    return _choose_kind(Random(seed))


def _choose_kind(chance: Random) -> str:
    return chance.choice(list(KINDS))


def listed() -> dict[str, list[int]]:
    """The seeds of each kind that are run by default."""
    return tomllib.loads(SEEDS.read_text())


def listed_seeds() -> list[int]:
    """All of them, in an order that mixes the kinds."""
    return sorted(seed for seeds in listed().values() for seed in seeds)


def new_seeds(kind: str, number: int) -> Sequence[int]:
    """Seeds of a kind, others each time."""
    chance = Random()
    drawn = (chance.randrange(MOST_SEED) for _ in count())
    return list(islice((seed for seed in drawn if kind_of(seed) == kind), number))


def run(seed: int) -> Outcome:
    chance = Random(seed)
    kind = _choose_kind(chance)
    directory = Path(tempfile.mkdtemp(prefix="headwater-torture-"))
    began, verdict, why = time.monotonic(), None, ""
    try:
        verdict = KINDS[kind](directory, chance)
    except Exception:
        why = traceback.format_exc()
    seconds = time.monotonic() - began
    if verdict is not None and verdict.good:
        shutil.rmtree(directory)
    return Outcome(seed, kind, seconds, verdict, why, directory)


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many cycles of each kind there were, how long they took, and what is lost."""
    lines = []
    for kind in KINDS:
        if some := [each for each in outcomes if each.kind == kind]:
            mean = sum(each.seconds for each in some) / len(some)
            bad = sum(not each.good for each in some)
            lines.append(f"{kind}: {len(some)} cycles, {bad} bad, {mean:.1f} s each")
    verdicts = [each.verdict for each in outcomes if each.verdict is not None]
    seconds = sum(each.seconds for each in outcomes)
    total = (
        f"{len(outcomes)} cycles, {sum(not each.good for each in outcomes)} bad, "
        f"{seconds / max(len(outcomes), 1):.1f} s each, {seconds:.0f} s in all: "
        f"acknowledged {sum(each.acknowledged for each in verdicts):,}, "
        f"lost {sum(each.lost for each in verdicts):,}, "
        f"twice {sum(each.twice for each in verdicts):,}"
    )
    return "\n".join([*lines, total])
