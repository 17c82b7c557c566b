"""The figures to reach: nearly all are ratios between figures of the same run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.contestants import QUEUES
from bench.figures import Metric, Row
from bench.scale import Scale
from bench.scenarios import (
    acked,
    empty,
    fanout,
    growth,
    idle,
    large,
    latency,
    matching,
    opening,
    publishers,
    queue,
    reading,
    router,
    stalled,
    steady,
    topics,
)

OUTPUT_BUFFER_MIB = 1.0  # the default of limits.output_buffer_bytes
NOISE_MIB = 4.0  # an allocator grows in steps of a few MiB, stalled subscriber or not

#: Most targets are for the two protocols that everything can be said in.
_TITLES = {"headwater-psmb": "PSMB", "headwater-bpsp": "BPSP"}

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


def best(choose: Callable[[Sequence[float]], float], *values: Value) -> Value:
    """The best of some brokers, if all were measured."""

    def value(book: Book) -> float | None:
        found = [figure for figure in (each(book) for each in values) if figure is not None]
        return choose(found) if len(found) == len(values) else None

    return value


def difference(left: Value, right: Value) -> Value:
    return _combine(left, right, lambda a, b: a - b)


def targets(scale: Scale) -> list[Target]:
    return [
        *_throughput(),
        *_frames(),
        *_large(scale),
        *_topics(scale),
        *_fleets(scale),
        *_steady(scale),
        *_latency(),
        *_matching(scale),
        *_growth(scale),
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
            figure(acked.NAME, acked.NARROW, who, Metric.RATE)
            for who in ("headwater-bmtp", "jetstream")
        )
    )
    found = [
        Target("BMTP QoS 1 against JetStream, both with a window of 255", True, 2, "×", window),
        Target(
            "BMTP 1 → 8 with QoS 0 against nats-server",
            True,
            1,
            "×",
            against("headwater-bmtp", "nats", 8),
        ),
    ]
    for who, title, subscribers in (
        ("headwater-prism", "Prism", 1),
        ("headwater-crystal", "CrystalConnector", 1),
        ("headwater-crystal", "CrystalConnector", 8),
    ):
        text = f"{title} {fanout.case(subscribers)} against nats-server over WebSocket"
        found.append(Target(text, True, 2, "×", against(who, "nats-ws", subscribers)))
    return found


def _fleets(scale: Scale) -> list[Target]:
    """Many publishers with one message each, with topics of their own and with one."""
    cases = [case(n) for n in scale.fleets for case in (publishers.case, publishers.one_topic)]
    found: list[Target] = []
    for who, title in _TITLES.items():
        for case in cases:
            found.append(_unacknowledged(who, f"{title}, {case}", case))
    for who, title in _TITLES.items():
        for case in cases:
            found += _acknowledged(who, f"{title}, {case}, acknowledged", case)
    return found


def _unacknowledged(who: str, text: str, case: str) -> Target:
    mine, mosquitto, nats = (
        figure(publishers.NAME, case, each, Metric.RATE) for each in (who, "mosquitto", "nats")
    )
    against = ratio(mine, best(max, mosquitto, nats))
    return Target(f"{text}: against the better of mosquitto and nats-server", True, 1, "×", against)


def _acknowledged(who: str, text: str, case: str) -> list[Target]:
    """What others acknowledge before it is synced, and with a sync each."""

    def against(peer: str, metric: Metric) -> Value:
        return ratio(*(figure(acked.NAME, case, each, metric) for each in (who, peer)))

    limits = (("mosquitto-durable", 0.5), ("jetstream", 1.0), ("jetstream-fsync", 8.0))
    cpu = against("mosquitto-durable", Metric.CPU)
    return [
        *(
            Target(f"{text}: against {peer}", True, limit, "×", against(peer, Metric.RATE))
            for peer, limit in limits
        ),
        Target(f"{text}: CPU per message against mosquitto-durable", False, 1.6, "×", cpu),
    ]


def _steady(scale: Scale) -> list[Target]:
    case, found = steady.case(scale.devices), list[Target]()
    for who, title in _TITLES.items():
        p99, core = (figure(steady.NAME, case, who, m) for m in (Metric.P99, Metric.CORE))
        found.append(Target(f"{title}, {case}: p99", False, 10_000, " µs", p99))
        found.append(Target(f"{title}, {case}: of a core", False, 60, " %", core))
    return found


def _topics(scale: Scale) -> list[Target]:
    case, who = topics.case(scale.topics), "headwater-bpsp"
    text = f"BPSP, one publisher over {scale.topics:,} topics"
    cpu = figure(topics.NAME, case, who, Metric.CPU)
    rate = ratio(*(figure(topics.NAME, case, each, Metric.RATE) for each in (who, "mosquitto")))
    return [
        Target(f"{text}: CPU per message", False, 8, " µs", cpu),
        Target(f"{text}: against mosquitto", True, 1, "×", rate),
    ]


def _large(scale: Scale) -> list[Target]:
    return [
        Target(
            f"{title}, {large.case(size)}: bytes/s against nats-server",
            True,
            0.8,
            "×",
            ratio(*(figure(large.NAME, large.case(size), w, Metric.BYTES) for w in (who, "nats"))),
        )
        for size in scale.large
        for who, title in _TITLES.items()
    ]


def _growth(scale: Scale) -> list[Target]:
    """What a publish costs where there is more of something, against where there is little."""
    few, many = scale.growth
    found: list[Target] = []
    for what in (growth.TOPICS, growth.SUBSCRIPTIONS, growth.QUEUES):
        left, right = (
            figure(growth.NAME, growth.case(n, what), "headwater-bpsp", Metric.CPU)
            for n in (many, few)
        )
        text = f"CPU per message with {growth.case(many, what)} against {few:,}"
        found.append(Target(text, False, 1.3, "×", ratio(left, right)))
    return found


def _queues(scale: Scale) -> list[Target]:
    few, many = scale.waiting
    found: list[Target] = []
    for who in QUEUES:
        for case in (queue.waiting, queue.reopened):
            left, right = (figure(queue.NAME, case(n), who, Metric.PEAK) for n in (many, few))
            grown = difference(left, right)
            first = figure(queue.NAME, case(many), who, Metric.FIRST)
            text = f"{case(many)}, {who}"
            found.append(Target(f"memory with {text}", False, 64, " MiB", grown))
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
        Target(f"{text}: p50", False, 1.5, "×", grows(matching.single, Metric.P50)),
    ]


def _latency() -> list[Target]:
    def one(who: str, metric: Metric) -> Value:
        return figure(latency.NAME, latency.CASE, who, metric)

    found: list[Target] = []
    for who, title in _TITLES.items():
        for metric, word in ((Metric.P50, "p50"), (Metric.P99, "p99")):
            peers = best(min, *(one(peer, metric) for peer in ("nats", "mosquitto", "redis")))
            text = f"{word} of one message, {title}, against the best of the peers"
            found.append(Target(text, False, 1, "×", ratio(one(who, metric), peers)))
    return found


def _memory(scale: Scale) -> list[Target]:
    found: list[Target] = []
    for who in ("headwater-psmb", "headwater-bpsp"):
        case = idle.case(scale.idle_connections)
        cost = figure(idle.NAME, case, who, Metric.PER_CONNECTION)
        found.append(Target(f"an idle connection, {who}", False, 40, " KiB", cost))
    for who in ("headwater-psmb", "headwater-bpsp"):
        text = f"beside a subscriber that never reads, {who}"
        p99 = ratio(*_stall(who, Metric.P99))
        grown = difference(*_stall(who, Metric.GROWTH))
        found.append(Target(f"p99 {text}", False, 1.2, "×", p99))
        allowed = OUTPUT_BUFFER_MIB + NOISE_MIB
        found.append(Target(f"memory {text}", False, allowed, " MiB", grown))
        for case in (reading.PACED, reading.FLAT_OUT):
            p99 = ratio(*_reading(who, case))
            found.append(Target(f"p99 beside {case}, {who}", False, 1.2, "×", p99))
    for case in (empty.READY, empty.LATER):
        resident = figure(empty.NAME, case, "headwater-psmb", Metric.RSS)
        found.append(Target(f"memory of an empty broker, {case}", False, 80, " MB", resident))
    return found


def _reading(who: str, case: str) -> tuple[Value, Value]:
    """With somebody who reads the log, and without."""
    return (
        figure(reading.NAME, case, who, Metric.P99),
        figure(reading.NAME, reading.ALONE, who, Metric.P99),
    )


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
