"""The ratios to reach, all of them between figures of the same run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.contestants import QUEUES
from bench.figures import Metric, Row
from bench.scale import Scale
from bench.scenarios import (
    acked,
    fanout,
    idle,
    latency,
    matching,
    opening,
    queue,
    router,
    stalled,
)

OUTPUT_BUFFER_MIB = 1.0  # the default of limits.output_buffer_bytes
NOISE_MIB = 4.0  # an allocator grows in steps of a few MiB, stalled subscriber or not

Value = Callable[["Book"], float | None]


class Book:
    """All rows of a run, to look figures up in."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = {(row.scenario, row.case, row.contestant): row for row in rows}

    def median(self, scenario: str, case: str, contestant: str, metric: Metric) -> float | None:
        row = self._rows.get((scenario, case, contestant))
        return None if row is None else row.median(metric)


@dataclass(frozen=True, slots=True)
class Target:
    text: str
    at_least: bool
    limit: float
    unit: str
    value: Value

    def verdict(self, book: Book) -> "Verdict":
        return Verdict(self, self.value(book))


@dataclass(frozen=True, slots=True)
class Verdict:
    target: Target
    measured: float | None

    @property
    def passed(self) -> bool | None:
        """None where a figure is missing: a peer was not there, or a scenario was left out."""
        if self.measured is None:
            return None
        limit = self.target.limit
        return self.measured >= limit if self.target.at_least else self.measured <= limit


def figure(scenario: str, case: str, contestant: str, metric: Metric) -> Value:
    return lambda book: book.median(scenario, case, contestant, metric)


def _combine(left: Value, right: Value, how: Callable[[float, float], float]) -> Value:
    def value(book: Book) -> float | None:
        a, b = left(book), right(book)
        return None if a is None or b is None else how(a, b)

    return value


def ratio(left: Value, right: Value) -> Value:
    return _combine(left, right, lambda a, b: a / b if b else float("inf"))


def difference(left: Value, right: Value) -> Value:
    return _combine(left, right, lambda a, b: a - b)


def targets(scale: Scale) -> list[Target]:
    return [
        *_throughput(),
        *_frames(),
        *_matching(scale),
        *_latency(),
        *_queues(scale),
        *_memory(scale),
        *_opening(scale),
    ]


def _throughput() -> list[Target]:
    def rate(subscribers: int, who: str) -> Value:
        return figure(fanout.NAME, fanout.case(subscribers), who, Metric.RATE)

    psmb, jetstream = (
        rate(1, "headwater-psmb"),
        figure(acked.NAME, acked.WINDOW, "jetstream", Metric.RATE),
    )
    eight = ratio(rate(8, "headwater-psmb"), rate(8, "nats"))
    bpsp = ratio(rate(1, "headwater-bpsp"), rate(1, "mosquitto"))
    return [
        Target("PSMB 1 → 1 against mosquitto", True, 8, "×", ratio(psmb, rate(1, "mosquitto"))),
        Target("PSMB 1 → 1 against JetStream acknowledged", True, 3, "×", ratio(psmb, jetstream)),
        Target("PSMB 1 → 1 against nats-server", True, 0.5, "×", ratio(psmb, rate(1, "nats"))),
        Target("PSMB 1 → 8 against nats-server", True, 2, "×", eight),
        Target("BPSP 1 → 1 against mosquitto", True, 5, "×", bpsp),
    ]


def _frames() -> list[Target]:
    """The protocols with an acknowledgement for each message, or a WebSocket frame around it."""

    def against(left: str, right: str, subscribers: int) -> Value:
        case = fanout.case(subscribers)
        return ratio(*(figure(fanout.NAME, case, who, Metric.RATE) for who in (left, right)))

    window = ratio(
        *(
            figure(acked.NAME, acked.WINDOW, who, Metric.RATE)
            for who in ("headwater-bmtp", "jetstream")
        )
    )
    eight = against("headwater-bmtp", "nats", 8)
    crystal, prism = (against(f"headwater-{p}", "mosquitto", 1) for p in ("crystal", "prism"))
    return [
        Target("BMTP QoS 1 against JetStream acknowledged", True, 2, "×", window),
        Target("BMTP 1 → 8 with QoS 0 against nats-server", True, 1, "×", eight),
        Target("CrystalConnector 1 → 1 against mosquitto", True, 1.2, "×", crystal),
        Target("Prism 1 → 1 against mosquitto", True, 1.2, "×", prism),
    ]


def _queues(scale: Scale) -> list[Target]:
    few, many = scale.waiting
    found: list[Target] = []
    for who in QUEUES:
        for case in (queue.waiting, queue.reopened):
            left, right = (figure(queue.NAME, case(n), who, Metric.PEAK) for n in (many, few))
            growth = difference(left, right)
            first = figure(queue.NAME, case(many), who, Metric.FIRST)
            text = f"{case(many)}, {who}"
            found.append(Target(f"memory with {text}", False, 64, " MiB", growth))
            found.append(Target(f"first of {text}", False, 100, " ms", first))
        again = figure(queue.NAME, queue.LOST, who, Metric.AGAIN)
        found.append(Target(f"redelivery, {who}", False, 50, " ms", again))
    return found


def _matching(scale: Scale) -> list[Target]:
    few, many = scale.subscriptions
    text = f"matching with {many:,} subscriptions against {few:,}"

    def grows(case: Callable[[int], str], metric: Metric) -> Value:
        left, right = (
            figure(matching.NAME, case(n), "headwater-bpsp", metric) for n in (many, few)
        )
        return ratio(left, right)

    return [
        Target(f"{text}: the router", False, 1.5, "×", grows(router.case, Metric.ROUTE)),
        Target(f"{text}: CPU per message", False, 1.5, "×", grows(matching.stream, Metric.CPU)),
        Target(f"{text}: p50", False, 1.5, "×", grows(matching.single, Metric.P50)),
    ]


def _latency() -> list[Target]:
    p50 = {
        who: figure(latency.NAME, latency.CASE, who, Metric.P50)
        for who in ("headwater-psmb", "headwater-bpsp", "mosquitto")
    }
    mosquitto = p50.pop("mosquitto")
    return [
        Target(f"p50 of one message, {who}, against mosquitto", False, 1.5, "×", value)
        for who, value in ((who, ratio(mine, mosquitto)) for who, mine in p50.items())
    ]


def _memory(scale: Scale) -> list[Target]:
    found: list[Target] = []
    for who in ("headwater-psmb", "headwater-bpsp"):
        case = idle.case(scale.idle_connections)
        cost = figure(idle.NAME, case, who, Metric.PER_CONNECTION)
        found.append(Target(f"an idle connection, {who}", False, 40, " KiB", cost))
    for who in ("headwater-psmb", "headwater-bpsp"):
        text = f"beside a subscriber that never reads, {who}"
        p99 = ratio(*_stall(who, Metric.P99))
        growth = difference(*_stall(who, Metric.GROWTH))
        found.append(Target(f"p99 {text}", False, 1.2, "×", p99))
        allowed = OUTPUT_BUFFER_MIB + NOISE_MIB
        found.append(Target(f"memory {text}", False, allowed, " MiB", growth))
    return found


def _stall(who: str, metric: Metric) -> tuple[Value, Value]:
    """With the subscriber that never reads, and without."""
    return (
        figure(stalled.NAME, stalled.STALLED, who, metric),
        figure(stalled.NAME, stalled.READS, who, metric),
    )


def _opening(scale: Scale) -> list[Target]:
    return [
        Target(
            f"opening a log of {case}",
            False,
            2.0,
            " s",
            figure(opening.NAME, case, "headwater-psmb", Metric.READY),
        )
        for case in (opening.stopped(scale.log_bytes), opening.killed(scale.log_bytes))
    ]
