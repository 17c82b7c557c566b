"""One client floods, one is quiet: the API says who takes the loop, who is slowed and why."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from headwater.protocols.bpsp import codec as bpsp
from headwater.slowing import COST, REASONS
from tests.console.stand import client_of, console_of
from tests.e2e.process import BpspWire, BrokerProcess, eventually

TOPICS = 5_000


@contextmanager
def flood(broker: BrokerProcess) -> Iterator[BpspWire]:
    """Single messages to many topics, as fast as the broker reads them."""
    wire, done = broker.bpsp(), threading.Event()
    some = b"".join(
        bpsp.frame(bpsp.PUB, bpsp.format_headers((("x-topic", f"flood/{number}"),)), b"x")
        for number in range(TOPICS)
    )

    def send() -> None:
        while not done.is_set():
            wire.socket.sendall(some)

    sending = threading.Thread(target=send)
    sending.start()
    try:
        yield wire
    finally:
        done.set()
        sending.join()
        wire.close()


def address(wire: BpspWire) -> str:
    return f"127.0.0.1:{wire.socket.getsockname()[1]}"


def get(client: httpx.Client, path: str, **parameters: Any) -> Any:
    response = client.get(f"/api/v1/{path}", params=parameters)
    assert response.status_code == 200, response.text
    return response.json()


def samples(client: httpx.Client) -> dict[str, dict[str, float]]:
    """By the name of the metric and by reason, or "" where there is none."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            reason = sample.labels.get("reason", "")
            found.setdefault(sample.name, {})[reason] = sample.value
    return found


def test_who_floods_has_the_larger_share_and_is_slowed(tmp_path: Path) -> None:
    with console_of(tmp_path / "data") as broker, client_of(broker) as client:
        quiet = broker.bpsp()
        with flood(broker) as wire:
            for _ in eventually():
                assert quiet.publish("quiet", b"x") == 200
                listed = get(client, "connections", sort="-share")["items"]
                reasons = {each["reason"]: each for each in listed[0]["slowed"]}
                if listed[0]["share"] > 0.1 and COST in reasons and reasons[COST]["share"]:
                    break
            first, second = listed
            assert first["address"] == address(wire) and second["address"] == address(quiet)
            assert first["share"] > second["share"]
            assert first["loop_seconds"] > second["loop_seconds"] > 0
            assert reasons[COST]["meaning"] == REASONS[COST]
            assert reasons[COST]["times"] > 0 and reasons[COST]["seconds"] > 0
            assert COST not in {each["reason"] for each in second["slowed"]}
            by_slowed = get(client, "connections", sort="-slowed")["items"]
            assert by_slowed[0]["id"] == first["id"]
            detail = get(client, f"connections/{first['id']}")
            assert detail["address"] == first["address"] and detail["slowed"]
            figures = get(client, "overview")["loop"]
            assert 0 < figures["busy"] <= 1 and figures["turn_ms_p99"] > 0
            assert {each["reason"] for each in figures["slowed"]} == set(REASONS)
        assert quiet.publish("quiet", b"x") == 200
        metrics = samples(client)
        assert metrics["headwater_slowed_total"][COST] > 0
        assert metrics["headwater_slowed_seconds_total"][COST] > 0
        assert set(metrics["headwater_slowed_connections"]) == set(REASONS)
        assert metrics["headwater_turns_total"][""] > 0
        for _ in eventually():  # who is gone is slowed no more
            if not any(samples(client)["headwater_slowed_connections"].values()):
                break
        missing = client.get("/api/v1/connections/999999")
        assert missing.status_code == 404


def test_metrics_of_the_loop_have_their_names(client: httpx.Client) -> None:
    known = samples(client)
    for name in (
        "turn_seconds_bucket",
        "turns_total",
        "turn_writes_total",
        "loop_cpu_seconds_total",
        "chores_seconds_total",
        "loop_lag_seconds_bucket",
        "loop_lag_longest_seconds",
        "input_claimed_bytes",
        "input_limit_bytes",
        "input_waiting",
        "output_connections",
        "output_limit_bytes",
        "output_share_bytes",
        "patterns_asked_total",
        "patterns_refused_total",
    ):
        assert f"headwater_{name}" in known
