"""Figures for monitoring."""

import json
import re
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from headwater.identity.attempts import FREE_ATTEMPTS
from tests.console.stand import publish
from tests.e2e.process import BrokerProcess, eventually
from tests.e2e.test_lockout import ATTACKER, WRONG, log_in_to_prism

DASHBOARD = Path(__file__).parent.parent.parent / "docs" / "grafana.json"


def test_metrics(broker: BrokerProcess, client: httpx.Client) -> None:
    for number in range(60):
        publish(broker, f"topic/{number}", b"x")
    for _ in eventually():
        response = client.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        found = {each.name: each for each in text_string_to_metric_families(response.text)}
        if found["headwater_topics"].samples[0].value == 60:
            break
    assert all(name.startswith("headwater") for name in found)
    received = {
        sample.labels["protocol"]: sample.value
        for sample in found["headwater_messages_in"].samples
        if sample.name.endswith("_total")
    }
    assert received["bpsp"] == 60 and received["psmb"] == 0
    topics = found["headwater_topic_messages"].samples
    assert len(topics) == 51, "the top 50 and the others"
    assert sum(sample.value for sample in topics) == 60
    syncs = found["headwater_log_sync_seconds"].samples
    assert any(sample.labels.get("le") == "+Inf" and sample.value > 0 for sample in syncs)
    labels = {name for each in found.values() for sample in each.samples for name in sample.labels}
    assert labels <= {"protocol", "topic", "queue", "reason", "le", "version", "limit", "code"}, (
        "no label for each client"
    )


def test_logins_that_fail_are_counted(broker: BrokerProcess, client: httpx.Client) -> None:
    def figures() -> tuple[float, float]:
        families = text_string_to_metric_families(client.get("/metrics").text)
        found = {sample.name: sample.value for each in families for sample in each.samples}
        return found["headwater_login_failures_total"], found["headwater_login_lockouts_total"]

    failed, (before, kept_out) = 0, figures()
    while "too many attempts" not in log_in_to_prism(
        broker.ports["prism"], ATTACKER, "nobody", WRONG
    ):
        failed += 1
    assert failed >= FREE_ATTEMPTS
    for _ in eventually():
        if figures() == (before + failed, kept_out + 1):
            break


def test_health(client: httpx.Client) -> None:
    assert client.get("/healthz").text == "ok\n"
    assert client.get("/readyz").text == "ready\n"


def test_the_dashboard_uses_metrics_that_exist(client: httpx.Client) -> None:
    known = set()
    for family in text_string_to_metric_families(client.get("/metrics").text):
        known |= {sample.name for sample in family.samples} | {family.name}
        known |= {f"{family.name}_bucket"} if family.type == "histogram" else set()
    used = set(re.findall(r"headwater_\w+", DASHBOARD.read_text()))
    assert len(used) >= 15
    queues = {name for name in used if name.startswith("headwater_queue_")}
    assert used - queues <= known
    assert queues <= known
    assert json.loads(DASHBOARD.read_text())["panels"]
