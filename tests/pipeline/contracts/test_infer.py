"""Drafts of contracts, from a real log."""

import json
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError
from headwater.pipeline.contracts import inference
from headwater.pipeline.contracts.checks import typed
from headwater.pipeline.contracts.reading import parse
from headwater.spark.flight_client import FlightClient
from tests.cli.here import headwater_here
from tests.e2e.process import BrokerProcess
from tests.flight.client import Client, rows

VALUES = [
    {
        "id": number,
        "at": "2026-03-01T12:00:00Z",
        "sent": 1772366400000 + number,
        "price": 1 if number % 2 else 2.5,
        "paid": True,
        "tags": ["a"],
        "place": {"lat": 1.5, "name": None},
        "lines": [{"sku": "x", "count": 2}],
        "date": "2026-03-01",
        "odd name": "x",
        "on": 1,
        **({"note": "hi"} if number == 3 else {}),
    }
    for number in range(10)
]
PAYLOADS = [json.dumps(each).encode() for each in VALUES]


def test_a_draft_takes_what_it_was_made_from() -> None:
    draft = inference.draft(inference.summed("shop/orders", [*PAYLOADS, b"{"]))
    made = parse(draft, Path("draft.yml"))
    for value in PAYLOADS:
        typed(made, value)
    kinds = {each.name: str(each.kind) for each in made.fields}
    assert kinds == {
        "id": "long",
        "at": "timestamp",
        "sent": "timestamp",
        "price": "double",
        "paid": "boolean",
        "tags": "array<string>",
        "place": "struct",
        "lines": "array<struct>",
        "date": "date",
        "odd name": "string",
        "on": "long",
        "note": "string",
    }
    assert (made.name, made.key, made.event_time) == ("shop_orders", ("id",), "at")
    assert made.field("id").required and not made.field("note").required
    assert "# in 1 of 10" in draft and "# min: 0" in draft and "1 of them are no JSON" in draft


@pytest.mark.parametrize("values", [[], [b"x", b"1"]])
def test_nothing_to_draft_from(values: list[bytes]) -> None:
    with pytest.raises(HeadwaterError):
        inference.summed("a", values)


def test_infer_looks_at_the_newest_messages(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "spark-pipeline.yml").write_text("name: p\nstorage: storage\n")
    with BrokerProcess(tmp_path / "data") as broker:
        port = broker.ports["flight"]
        client = Client(port)
        old = [("orders", b'{"old":1}')] * 5
        new = [("orders", value) for value in PAYLOADS]
        client.put(rows(*old, *new, ("other", b"x")), do="append", producer="t", sequence=1)
        client.close()
        found = inference.sample(FlightClient((f"127.0.0.1:{port}",)), "orders", 10)
        assert found.records == 10 and "old" not in found.fields
        asked = ["pipeline", "contracts", "infer", "orders", "--project", str(project)]
        asked += ["--servers", f"127.0.0.1:{port}"]
        printed = headwater_here(*asked)
        assert printed.returncode == 0 and "# Drafted from 15 messages" in printed.stdout
        written = headwater_here(*asked, "--write")
        assert written.returncode == 0
        file = project / "contracts" / "orders.yml"
        assert file.read_text() == printed.stdout
        again = headwater_here(*asked, "--write")
        assert again.returncode == 1 and str(file) in again.stderr
