"""The benchmark in small, against a real broker: does it run, and does it count right?

How fast the broker is, is not asked here: a test machine may be busy with anything.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import report, runner
from bench.brokers import KINDS, Yard
from bench.contestants import ALL, DURABLE, FLEETS, LIVE, QUEUES, STREAMS, STREAMS_TO_ONE
from bench.figures import Figures, Metric, Row
from bench.load.counter import Arrivals
from bench.scale import TINY
from bench.scenarios import all_scenarios, reading
from bench.targets import Book, targets
from bench.wire import WIRES
from bench.wire.websocket import BINARY, Frames, framed, masked, payloads_in

# One worker runs them all: the measurements are made once, and not next to each other. This is done
# within the time of the first test, and a busy machine takes minutes for it.
pytestmark = pytest.mark.timeout(900)

OURS = [name for name, contestant in ALL.items() if contestant.family == "headwater"]


FLEET_CASES = [f"{TINY.fleets[0]} × 1 message{where}" for where in ("", ", one topic")]


def ours(names: tuple[str, ...]) -> list[str]:
    return [name for name in OURS if name in names]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Row]]:
    """One round of everything but what needs seconds of its own: idle connections, a subscriber
    that never reads, a large log, and a search among many subscriptions."""
    unwanted = {"idle", "stalled", "opening", "matching"}
    scenarios = [each for each in all_scenarios(TINY) if each.name not in unwanted]
    yard = Yard(tmp_path_factory.mktemp("bench"))
    yield runner.run(scenarios, [ALL[name] for name in OURS], yard, lambda _: None)


def sample(rows: list[Row], scenario: str, case: str, who: str) -> Figures:
    (row,) = [r for r in rows if (r.scenario, r.case, r.contestant) == (scenario, case, who)]
    assert row.failures == ()
    return row.samples[0]


@pytest.mark.bench
@pytest.mark.parametrize(
    ("who", "subscribers"),
    [
        (who, subscribers)
        for subscribers in TINY.fan_out
        for who in ours(STREAMS if subscribers > 1 else STREAMS_TO_ONE)
    ],
)
def test_every_subscriber_of_a_stream_is_counted(
    rows: list[Row], who: str, subscribers: int
) -> None:
    """A lost or repeated byte would have been a failure, so arriving here means all came."""
    figures = sample(rows, "fan-out", f"1 → {subscribers}", who)
    assert figures[Metric.RATE] > 0
    assert figures[Metric.DELIVERIES] == pytest.approx(figures[Metric.RATE] * subscribers)
    assert figures[Metric.CPU] >= 0
    assert 10 < figures[Metric.PEAK] < 2000


@pytest.mark.bench
@pytest.mark.parametrize("who", ours(LIVE))
def test_latency_is_positive_and_ordered(rows: list[Row], who: str) -> None:
    figures = sample(rows, "latency", "one message", who)
    assert 1 < figures[Metric.P50] <= figures[Metric.P99]
    # One at a time: the rate follows from how long one takes.
    assert figures[Metric.RATE] <= 1e6 / figures[Metric.P50] * 2


@pytest.mark.bench
@pytest.mark.parametrize("who", ours(DURABLE))
@pytest.mark.parametrize("case", ["1 with a window", *FLEET_CASES])
def test_acknowledgements_are_counted(rows: list[Row], who: str, case: str) -> None:
    assert sample(rows, "acknowledged", case, who)[Metric.RATE] > 0


@pytest.mark.bench
def test_a_window_may_be_as_narrow_as_that_of_another_protocol(rows: list[Row]) -> None:
    figures = sample(rows, "acknowledged", "1 with a window of 255", "headwater-bmtp")
    assert figures[Metric.RATE] > 0


@pytest.mark.bench
@pytest.mark.parametrize("who", ours(FLEETS))
@pytest.mark.parametrize("case", FLEET_CASES)
def test_every_message_of_a_fleet_comes_back(rows: list[Row], who: str, case: str) -> None:
    figures = sample(rows, "publishers", case, who)
    assert 1 < figures[Metric.P50] <= figures[Metric.P99]


@pytest.mark.bench
def test_devices_with_a_message_a_second_take_a_part_of_a_core(rows: list[Row]) -> None:
    figures = sample(rows, "steady", f"{TINY.devices} × 1 message/s", "headwater-bpsp")
    assert figures[Metric.RATE] <= TINY.devices * 2
    assert figures[Metric.CORE] >= 0


@pytest.mark.bench
def test_one_publisher_reaches_all_its_topics(rows: list[Row]) -> None:
    figures = sample(rows, "topics", f"{TINY.topics} in turn", "headwater-bpsp")
    assert figures[Metric.RATE] > 0


@pytest.mark.bench
@pytest.mark.parametrize("who", ["headwater-psmb", "headwater-bpsp"])
@pytest.mark.parametrize("size", TINY.large)
def test_large_messages_are_told_in_bytes(rows: list[Row], who: str, size: int) -> None:
    figures = sample(rows, "large", f"{size // 1024} KiB, 1 → 1", who)
    assert figures[Metric.BYTES] == pytest.approx(figures[Metric.RATE] * size / 1e6)


@pytest.mark.bench
@pytest.mark.parametrize("what", ["topics", "subscriptions", "queues"])
@pytest.mark.parametrize("count", TINY.growth)
def test_a_publish_is_measured_with_little_and_with_much(
    rows: list[Row], what: str, count: int
) -> None:
    assert sample(rows, "growth", f"{count} {what}", "headwater-bpsp")[Metric.RATE] > 0


@pytest.mark.bench
@pytest.mark.parametrize("case", [reading.PACED, reading.FLAT_OUT])
def test_a_reader_over_flight_reads_beside_the_probe(rows: list[Row], case: str) -> None:
    alone = sample(rows, "reading", "nobody reads the log", "headwater-bpsp")
    beside = sample(rows, "reading", case, "headwater-bpsp")
    assert alone[Metric.P99] > 0
    assert beside[Metric.P99] > 0
    assert beside[Metric.BYTES] > 0


@pytest.mark.bench
@pytest.mark.parametrize("case", ["when it is ready", "after a while"])
def test_an_empty_broker_has_some_memory(rows: list[Row], case: str) -> None:
    assert 10 < sample(rows, "empty", case, "headwater-psmb")[Metric.RSS] < 500


@pytest.mark.bench
@pytest.mark.parametrize("who", ours(QUEUES))
@pytest.mark.parametrize("suffix", ["", ", after a restart"])
@pytest.mark.parametrize("count", TINY.waiting)
def test_what_waits_in_a_queue_gets_to_a_consumer(
    rows: list[Row], who: str, suffix: str, count: int
) -> None:
    figures = sample(rows, "queue", f"{count:,} waiting{suffix}", who)
    assert figures[Metric.FIRST] > 0
    assert 10 < figures[Metric.PEAK] < 2000


@pytest.mark.bench
@pytest.mark.parametrize("who", ours(QUEUES))
def test_what_a_lost_consumer_held_gets_to_the_next(rows: list[Row], who: str) -> None:
    figures = sample(rows, "queue", "a consumer is lost", who)
    assert 0 < figures[Metric.P50] <= figures[Metric.AGAIN] * 1000


@pytest.mark.bench
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


def test_the_best_of_some_is_known_when_all_are() -> None:
    def row(who: str, p50: float) -> Row:
        return Row("latency", "one message", who, ({Metric.P50: p50},))

    rows = [row("headwater-psmb", 60), row("nats", 50), row("mosquitto", 40)]
    wanted = "p50 of one message, PSMB, against the best of the peers"

    def measured(rows: list[Row]) -> float | None:
        (found,) = [t for t in targets(TINY) if t.text == wanted]
        return found.verdict(Book(rows)).measured

    assert measured(rows) is None
    assert measured([*rows, row("redis", 80)]) == 1.5


def test_every_scenario_and_target_can_be_told_apart() -> None:
    texts = [target.text for target in targets(TINY)]
    assert len(set(texts)) == len(texts)
    titles = [scenario.title for scenario in all_scenarios(TINY)]
    assert len(set(titles)) == len(titles)


def test_servers_leave_nothing_behind(tmp_path: Path) -> None:
    with Yard(tmp_path).server("headwater") as server:
        process = Path(f"/proc/{server.pid}")
        assert process.exists()
    assert not process.exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", WIRES)
def test_a_publish_is_not_larger_than_it_has_to_be(name: str) -> None:
    """All brokers get the same payloads, and no protocol is burdened with needless bytes."""
    (payload,) = WIRES[name].payloads(1, 128)
    encoded = WIRES[name].publish("bench/fan", payload)
    assert payload in encoded
    assert len(encoded) < 200


@pytest.mark.parametrize("name", ["bmtp", "prism"])
@pytest.mark.parametrize("frame", [40, 100, 123, 200])
def test_deliveries_that_are_numbered_are_counted_by_their_bytes(name: str, frame: int) -> None:
    """However many digits a number has, and where a frame begins to need a longer header."""
    wire, first = WIRES[name], {"bmtp": 0, "prism": 1}[name]

    def delivery(number: int) -> int:
        content = frame + len(str(number))
        return framed(content) if name == "prism" else content

    sizes = [delivery(number) for number in range(first, first + 1200)]
    assert wire.size(frame, 0, 1200) == sum(sizes)
    assert wire.size(frame, 32, 1100) == sum(sizes[32:1132])
    assert wire.frame(sum(sizes[:32]), 32) == frame
    for count in (0, 1, 9, 10, 99, 100, 999, 1200):
        whole = sum(sizes[:count])
        assert wire.whole(frame, whole) == count
        assert wire.whole(frame, whole + 1) == count
        assert wire.whole(frame, whole - 1) == count - 1 or not count


def test_receipts_name_every_delivery_once() -> None:
    acks, used = payloads_in(unmasked(WIRES["prism"].receipts(8, 3)))
    assert acks == [b"\x039", b"\x0310", b"\x0311"]
    assert used
    assert WIRES["bmtp"].receipts(253, 3) == b"\x40\xfe\x40\xff\x40\x01"


def unmasked(frames: bytes) -> bytes:
    """The frames of a client as a broker would send them: the load's keys are zero."""
    data, position = b"", 0
    while position < len(frames):
        size = frames[position + 1] & 0x7F
        assert size < 126
        assert frames[position + 2 : position + 6] == bytes(4)
        data += bytes([frames[position], size]) + frames[position + 6 : position + 6 + size]
        position += 6 + size
    return data


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_frames_have_the_size_that_they_are_counted_with(size: int) -> None:
    frame = masked(BINARY, b"x" * size)
    assert len(frame) == framed(size) + 4  # a client's has a key as well


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 1000])
def test_what_is_inside_of_frames_is_counted_however_they_are_cut(cut: int) -> None:
    sizes = (0, 5, 125, 126, 300, 65_536)
    data = b"".join(bytes([0x82]) + head(size) + b"x" * size for size in sizes)
    frames = Frames()
    parts = [memoryview(data[at : at + cut]) for at in range(0, len(data), cut)]
    assert sum(map(frames.feed, parts)) == sum(sizes)


def head(size: int) -> bytes:
    """The length of a frame without a key."""
    if size < 126:
        return bytes([size])
    digits = 2 if size < 65_536 else 8
    return bytes([126 if digits == 2 else 127]) + size.to_bytes(digits, "big")


def test_deliveries_are_counted_by_size_or_by_mark() -> None:
    by_size, by_mark = Arrivals(WIRES["psmb"], 10), Arrivals(WIRES["bmtp"], 0)
    assert [by_size.feed(b"x" * size) for size in (9, 1, 25)] == [0, 1, 2]
    assert [by_mark.feed(data) for data in (b'{"a":"b"', b'}{"c":"d"}', b'"', b"}")] == [0, 2, 0, 1]


def test_a_refused_publish_is_noticed() -> None:
    bmtp, crystal = WIRES["bmtp"], WIRES["crystal"]
    assert not bmtp.refuses(b"\x40\x01\x40\x41", 0)
    assert bmtp.refuses(b"\x40\x01\x41\x02", 0)
    assert not bmtp.refuses(b"\x45\x40", 1)  # the id of the PUBACK before, cut in two
    assert crystal.refuses(b"\x82\x02\x10\x05", 0)


def test_every_contestant_has_a_server_and_a_wire() -> None:
    for contestant in ALL.values():
        assert contestant.kind in KINDS
        assert contestant.wire in WIRES
