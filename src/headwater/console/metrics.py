"""The broker's figures as Prometheus reads them.

No label has more values than there are listeners, queues, 51 topics or reasons to slow a client:
clients are not labels.
"""

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_QUEUES = 200
#: The topics that are not among those with the most messages, summed up.
OTHERS = "(other topics)"


def exposition(content: dict[str, Any]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(content))
    text: bytes = generate_latest(registry)
    return text


class _Figures(Collector):
    def __init__(self, content: dict[str, Any]) -> None:
        self._content = content

    def collect(self) -> Iterator[Metric]:
        yield from _build(self._content)
        yield from _log(self._content)
        yield from _loop(self._content["loop"])
        yield from _slowed(self._content["loop"]["slowed"])
        yield from _protocols(self._content["protocols"])
        yield from _tls(self._content)
        yield from _subscribers(self._content)
        yield from _topics(self._content)
        yield from _queues(self._content["queues"][:MOST_QUEUES])
        yield from _access(self._content["access"])
        yield from _counters(self._content["counters"])


def _build(content: dict[str, Any]) -> Iterator[Metric]:
    yield InfoMetricFamily("headwater", "The broker.", value={"version": content["version"]})
    yield GaugeMetricFamily(
        "headwater_start_time_seconds", "When the broker started.", content["started"] / 1e6
    )


def _log(content: dict[str, Any]) -> Iterator[Metric]:
    log = content["log"]
    gauge = GaugeMetricFamily
    yield gauge("headwater_log_start_offset", "The first offset that is retained.", log["start"])
    yield gauge("headwater_log_watermark", "Everything before it is durable.", log["watermark"])
    yield gauge("headwater_log_end_offset", "The next offset.", log["end"])
    yield gauge("headwater_log_bytes", "What the log takes on the disk.", log["bytes"])
    yield gauge("headwater_log_segments", "Files of the log.", log["segments"])
    yield gauge(
        "headwater_log_writable", "1 while messages are taken.", int(log["refusal"] is None)
    )
    yield _histogram(
        "headwater_log_sync_seconds",
        "How long it took to have messages on the disk.",
        content["syncs"],
    )


def _histogram(name: str, words: str, timings: dict[str, Any]) -> Metric:
    buckets, total = [], 0
    for bound, count in zip([*timings["bounds"], "+Inf"], timings["counts"], strict=True):
        total += count
        buckets.append((str(bound), total))
    return HistogramMetricFamily(name, words, buckets=buckets, sum_value=timings["seconds"])


def _loop(loop: dict[str, Any]) -> Iterator[Metric]:
    gauge, counter = GaugeMetricFamily, CounterMetricFamily
    turns, ins, outs, patterns = loop["turns"], loop["input"], loop["output"], loop["patterns"]
    yield _histogram("headwater_turn_seconds", "How long turns of the event loop took.", turns)
    yield counter("headwater_turns", "Turns of the event loop.", sum(turns["counts"]))
    yield counter("headwater_turn_writes", "Writes to connections.", loop["writes"])
    yield counter(
        "headwater_loop_cpu_seconds", "Processor time of the event loop.", loop["cpu_seconds"]
    )
    yield counter(
        "headwater_chores_seconds", "The loop's work in the background.", loop["chores_seconds"]
    )
    yield _histogram(
        "headwater_loop_lag_seconds", "How late the loop came to what was due.", loop["lag"]
    )
    yield gauge(
        "headwater_loop_lag_longest_seconds", "The same, in the last minute.", loop["lag_longest"]
    )
    yield gauge(
        "headwater_input_claimed_bytes", "Of messages that have begun to arrive.", ins["claimed"]
    )
    yield gauge("headwater_input_limit_bytes", "How much may be claimed.", ins["limit"])
    yield gauge("headwater_input_waiting", "Connections that wait for that.", ins["waiting"])
    yield gauge(
        "headwater_output_connections", "Connections with output that waits.", outs["connections"]
    )
    yield gauge("headwater_output_limit_bytes", "What may wait for all of them.", outs["limit"])
    yield gauge("headwater_output_share_bytes", "What may wait for each of them.", outs["share"])
    yield counter("headwater_patterns_asked", "Matches by another process.", patterns["asked"])
    yield counter("headwater_patterns_refused", "Patterns that took too long.", patterns["refused"])


def _slowed(reasons: list[dict[str, Any]]) -> Iterator[Metric]:
    now = GaugeMetricFamily("headwater_slowed_connections", "Slowed now.", labels=["reason"])
    times = CounterMetricFamily("headwater_slowed", "Slowed how often.", labels=["reason"])
    seconds = CounterMetricFamily(
        "headwater_slowed_seconds", "How long, of all connections.", labels=["reason"]
    )
    for each in reasons:
        now.add_metric([each["reason"]], each["connections"])
        times.add_metric([each["reason"]], each["times"])
        seconds.add_metric([each["reason"]], each["seconds"])
    yield from (now, times, seconds)


def _protocols(protocols: list[dict[str, Any]]) -> Iterator[Metric]:
    there = GaugeMetricFamily("headwater_connections", "Open connections.", labels=["protocol"])
    accepted = CounterMetricFamily(
        "headwater_connections_accepted", "Connections since the start.", labels=["protocol"]
    )
    for each in protocols:
        there.add_metric([each["name"]], each["connections"])
        accepted.add_metric([each["name"]], each["accepted"])
    yield from (there, accepted)
    for way, words in (("in", "from"), ("out", "to")):
        for unit in ("messages", "bytes"):
            counter = CounterMetricFamily(
                f"headwater_{unit}_{way}",
                f"{unit.capitalize()} {words} clients.",
                labels=["protocol"],
            )
            for each in protocols:
                counter.add_metric([each["name"]], each[way][unit])
            yield counter


def _tls(content: dict[str, Any]) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "headwater_handshakes", "Connections in their TLS handshake.", content["handshakes"]
    )
    expires = GaugeMetricFamily(
        "headwater_certificate_expires_seconds",
        "When the certificate of a listener expires.",
        labels=["listener"],
    )
    for each in content["certificates"]:
        expires.add_metric([each["listener"]], each["expires"])
    yield expires


def _subscribers(content: dict[str, Any]) -> Iterator[Metric]:
    gauge = GaugeMetricFamily
    yield gauge("headwater_subscriptions", "Subscriptions.", content["subscriptions"])
    yield gauge(
        "headwater_subscribers_behind", "Subscribers not at the end of the log.", content["behind"]
    )
    yield gauge(
        "headwater_subscribers_slow", "Subscribers 100,000 offsets behind.", content["slow"]
    )
    yield gauge(
        "headwater_connections_paused", "Clients that are not read from.", content["paused"]
    )
    yield gauge("headwater_delayed_messages", "Messages to deliver later.", content["delayed"])
    yield gauge("headwater_taps", "Live tails of the console.", content["taps"])
    yield CounterMetricFamily(
        "headwater_lost_messages",
        "Messages that retention took before a subscriber or queue got them.",
        content["lost"],
    )
    yield CounterMetricFamily(
        "headwater_log_read_errors",
        "Reads of the log for a subscriber or queue that failed.",
        content["read_errors"],
    )


def _topics(content: dict[str, Any]) -> Iterator[Metric]:
    rest = content["other_topics"]
    yield GaugeMetricFamily(
        "headwater_topics", "Topics in the log.", len(content["topics"]) + rest["topics"]
    )
    count = GaugeMetricFamily(
        "headwater_topic_messages", "Retained messages, by topic.", labels=["topic"]
    )
    size = GaugeMetricFamily(
        "headwater_topic_bytes", "About what they take on the disk.", labels=["topic"]
    )
    for each in [*content["topics"], {**rest, "topic": OTHERS}]:
        count.add_metric([each["topic"]], each["count"])
        size.add_metric([each["topic"]], each["bytes"])
    yield from (count, size)


def _queues(queues: list[dict[str, Any]]) -> Iterator[Metric]:
    for name, words in (
        ("waiting", "Messages that wait in a queue, at least."),
        ("in_flight", "Messages that consumers hold."),
        ("returned", "Messages to be delivered again."),
        ("dead", "Dead letters."),
        ("consumers", "Consumers of a queue."),
    ):
        gauge = GaugeMetricFamily(f"headwater_queue_{name}", words, labels=["protocol", "queue"])
        for each in queues:
            gauge.add_metric([each["protocol"], each["name"]], each[name])
        yield gauge
    dropped = CounterMetricFamily(
        "headwater_queue_dropped",
        "Messages that a queue has dropped because nobody consumed them in time.",
        labels=["protocol", "queue"],
    )
    for each in queues:
        dropped.add_metric([each["protocol"], each["name"]], each["dropped"])
    yield dropped


def _access(access: dict[str, Any]) -> Iterator[Metric]:
    counter = CounterMetricFamily
    yield counter("headwater_login_failures", "Logins that failed.", access["failed"])
    yield counter(
        "headwater_login_lockouts",
        "Logins that were refused because too many before them had failed.",
        access["locked_out"],
    )
    limits = counter("headwater_limit_refusals", "What was refused, by limit.", labels=["limit"])
    for name, count in access["limits"].items():
        limits.add_metric([name], count)
    declined = counter("headwater_refusals", "What was refused, by reason.", labels=["code"])
    for name, count in access["declined"].items():
        declined.add_metric([name], count)
    yield from (limits, declined)


def _counters(counters: list[dict[str, Any]]) -> Iterator[Metric]:
    """What only one protocol has."""
    for each in counters:
        yield CounterMetricFamily(f"headwater_{each['name']}", each["meaning"], each["count"])
