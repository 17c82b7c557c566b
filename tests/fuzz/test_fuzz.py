"""`make fuzz` in small: for each target all inputs that are kept, and thousands made from them.

Nothing here depends on how busy the machine is: an input is too slow only if the broker's thread
needs the processor for so long, each time of ten.
"""

import pytest

from fuzz import corpus
from fuzz.outcome import Outcome, Plan
from fuzz.processes import run_all
from fuzz.targets import NAMES

INPUTS = 4_000


def run(plan: Plan) -> Outcome:
    (outcome,) = run_all([plan], 1, lambda line: None)
    return outcome


@pytest.mark.parametrize("name", NAMES)
def test_no_input_does_harm(name: str) -> None:
    outcome = run(Plan(name, INPUTS))
    found = [(finding.why, finding.data) for finding in outcome.findings]
    assert not found, found[0]
    assert outcome.inputs == INPUTS


@pytest.mark.parametrize("name", NAMES)
def test_there_are_inputs_that_are_kept(name: str) -> None:
    kept = corpus.kept(name)
    assert kept == sorted(set(kept), key=lambda data: (len(data), data))
    assert max(map(len, kept)) <= corpus.MOST_KEPT_BYTES


def test_a_process_that_ends_by_itself_is_a_finding() -> None:
    outcome = run(Plan("no such target", 10))
    assert "the process has ended with code 1" in outcome.findings[0].why


def test_what_has_found_a_fault_is_read() -> None:
    assert {name for name in NAMES if corpus.regressions(name)} >= {"console", "control", "flight"}
