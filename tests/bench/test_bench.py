"""The benchmark in small, against a real broker: does it run, and does it count right?

How fast the broker is, is not asked here: a test machine may be busy with anything.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import report, runner
from bench.brokers import KINDS, Yard
from bench.contestants import ALL
from bench.figures import Figures, Metric, Row
from bench.scale import TINY
from bench.scenarios import all_scenarios
from bench.targets import Book, targets
from bench.wire import WIRES, payloads

# One worker runs them all: the measurements are made once, and not next to each other.
pytestmark = pytest.mark.xdist_group("bench")

OURS = ["headwater-psmb", "headwater-bpsp"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Row]]:
    """One round of the streams, the single messages and the acknowledged ones."""
    wanted = {"fan-out", "latency", "acknowledged"}
    scenarios = [each for each in all_scenarios(TINY) if each.name in wanted]
    yard = Yard(tmp_path_factory.mktemp("bench"))
    yield runner.run(scenarios, [ALL[name] for name in OURS], yard, lambda _: None)


def sample(rows: list[Row], scenario: str, case: str, who: str) -> Figures:
    (row,) = [r for r in rows if (r.scenario, r.case, r.contestant) == (scenario, case, who)]
    assert row.failures == ()
    return row.samples[0]


@pytest.mark.parametrize("who", OURS)
@pytest.mark.parametrize("subscribers", TINY.fan_out)
def test_every_subscriber_of_a_stream_is_counted(
    rows: list[Row], who: str, subscribers: int
) -> None:
    """A lost or repeated byte would have been a failure, so arriving here means all came."""
    figures = sample(rows, "fan-out", f"1 → {subscribers}", who)
    assert figures[Metric.RATE] > 1000
    assert figures[Metric.DELIVERIES] == pytest.approx(figures[Metric.RATE] * subscribers)
    assert figures[Metric.CPU] >= 0
    assert 10 < figures[Metric.PEAK] < 2000


@pytest.mark.parametrize("who", OURS)
def test_latency_is_positive_and_ordered(rows: list[Row], who: str) -> None:
    figures = sample(rows, "latency", "one message", who)
    assert 1 < figures[Metric.P50] <= figures[Metric.P99]
    # One at a time: the rate follows from how long one takes.
    assert figures[Metric.RATE] <= 1e6 / figures[Metric.P50] * 2


@pytest.mark.parametrize("who", OURS)
@pytest.mark.parametrize("case", ["1 with a window", f"{TINY.publishers} × 1 message"])
def test_acknowledgements_are_counted(rows: list[Row], who: str, case: str) -> None:
    assert sample(rows, "acknowledged", case, who)[Metric.RATE] > 0


def test_reports_say_what_was_measured(rows: list[Row]) -> None:
    verdicts = tuple(target.verdict(Book(rows)) for target in targets(TINY))
    made = report.Report(tuple(rows), verdicts, {"kernel": "any"}, "make bench", quotable=False)
    text = report.to_markdown(made)
    assert "| fan-out: 1 → 3 | headwater-bpsp |" in text
    assert "not measured" in text  # no peer took part, so no ratio to one
    assert '"fan-out"' in made.to_json()


def test_targets_compare_medians_of_the_same_run() -> None:
    def row(who: str, *rates: float) -> Row:
        return Row("fan-out", "1 → 1", who, tuple({Metric.RATE: rate} for rate in rates))

    book = Book([row("headwater-psmb", 900, 850, 10), row("mosquitto", 100, 100, 999)])
    verdicts = {v.target.text: v for v in (t.verdict(book) for t in targets(TINY))}
    verdict = verdicts["PSMB 1 → 1 against mosquitto"]
    assert verdict.measured == 8.5
    assert verdict.passed is True
    assert verdicts["PSMB 1 → 1 against nats-server"].passed is None


def test_servers_leave_nothing_behind(tmp_path: Path) -> None:
    with Yard(tmp_path).server("headwater") as server:
        process = Path(f"/proc/{server.pid}")
        assert process.exists()
    assert not process.exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", WIRES)
def test_a_publish_is_not_larger_than_it_has_to_be(name: str) -> None:
    """All brokers get the same payloads, and no protocol is burdened with needless bytes."""
    (payload,) = payloads(1, 128)
    encoded = WIRES[name].publish("bench/fan", payload)
    assert payload in encoded
    assert len(encoded) < 200


def test_every_contestant_has_a_server_and_a_wire() -> None:
    for contestant in ALL.values():
        assert contestant.kind in KINDS
        assert contestant.wire in WIRES
