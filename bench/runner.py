"""The order of a run: in every scenario, each broker in turn, and then all of them again.

What disturbs a machine comes and goes; taken in turn it hits all brokers alike, and the median of
the rounds leaves it out.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bench.brokers import ServerFailed, Yard
from bench.contestants import Contestant
from bench.crew import LoadFailed
from bench.figures import Figures, Findings, Row

Measure = Callable[[Yard, Contestant], Findings]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A question, who is asked, and how to measure the answer."""

    name: str
    title: str
    contestants: tuple[str, ...]
    measure: Measure
    rounds: int = 1


def run(
    scenarios: Iterable[Scenario],
    contestants: Sequence[Contestant],
    yard: Yard,
    say: Callable[[str], None],
) -> list[Row]:
    rows: list[Row] = []
    for scenario in scenarios:
        present = [c for c in contestants if c.name in scenario.contestants]
        rows += _run_one(scenario, present, yard, say)
    return rows


def _run_one(
    scenario: Scenario, contestants: list[Contestant], yard: Yard, say: Callable[[str], None]
) -> list[Row]:
    samples: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    failures: dict[str, list[str]] = defaultdict(list)
    for number in range(scenario.rounds):
        for contestant in contestants:
            say(f"{scenario.title}, round {number + 1} of {scenario.rounds}: {contestant.name}")
            try:
                findings = scenario.measure(yard, contestant)
            except (LoadFailed, ServerFailed, OSError) as error:
                say(f"  failed: {error}")
                failures[contestant.name].append(str(error))
                continue
            for case, figures in findings.items():
                samples[case, contestant.name].append(figures)
    return [*_measured(scenario, samples, failures), *_failed(scenario, samples, failures)]


def _measured(
    scenario: Scenario,
    samples: dict[tuple[str, str], list[Figures]],
    failures: dict[str, list[str]],
) -> list[Row]:
    """All brokers of a case together, the cases in the order that they were measured in."""
    cases = list(dict.fromkeys(case for case, _ in samples))
    return [
        Row(scenario.name, case, name, tuple(figures), tuple(failures.get(name, ())))
        for (case, name), figures in sorted(samples.items(), key=lambda kv: cases.index(kv[0][0]))
    ]


def _failed(
    scenario: Scenario,
    samples: dict[tuple[str, str], list[Figures]],
    failures: dict[str, list[str]],
) -> list[Row]:
    """Who never got to a figure is still shown."""
    seen = {name for _, name in samples}
    return [
        Row(scenario.name, "", name, (), tuple(sentences))
        for name, sentences in failures.items()
        if name not in seen
    ]
