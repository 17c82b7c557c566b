"""`headwater pipeline contracts infer` and `redrive`, as a person or a script calls them.

None of them needs Spark.
"""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import HeadwaterError
from headwater.pipeline.contracts import inference
from headwater.pipeline.contracts.checks import typed
from headwater.pipeline.contracts.reading import parse
from tests.cli.here import headwater_here
from tests.e2e.process import BrokerProcess
from tests.flight.client import Client, rows

CONTRACT = """
name: orders
topics: orders/.*
key: [id]
fields:
  id: {type: long, required: true}
  price: {type: double, min: -5}
"""
PROJECT = """
name: test
storage: storage
configuration:
  headwater.servers: 127.0.0.1:{port}
  headwater.contracts: contracts
"""
#: Somewhere nobody listens.
NOBODY = ("--servers", "127.0.0.1:1")


class Project:
    """The directory of a project, beside a broker."""

    def __init__(self, root: Path, broker: BrokerProcess) -> None:
        self.root = root
        self.client = Client(broker.ports["flight"])
        self._start = self.client.act("log")["end"]  # before it is what other tests have published
        self._sequence = 0
        (root / "contracts").mkdir(parents=True)
        (root / "contracts" / "orders.yml").write_text(CONTRACT)
        (root / "spark-pipeline.yml").write_text(PROJECT.format(port=broker.ports["flight"]))

    def append(self, topic: str, *values: bytes) -> None:
        self._sequence += 1
        batch = rows(*[(topic, value) for value in values])
        self.client.put(batch, do="append", producer=str(self.root), sequence=self._sequence)

    def values(self, topic: str) -> list[bytes]:
        end = self.client.act("log")["end"]
        found = self.client.read(start=self._start, end=end, topics=[topic])
        return list(found.column("value").to_pylist())

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return headwater_here("pipeline", *command, "--project", str(self.root))

    def run_alone(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """In a process of its own."""
        return subprocess.run(
            [sys.executable, "-m", "headwater", "pipeline", *command, "--project", str(self.root)],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=110,
        )

    def quarantine(self, *records: tuple[bytes, str], contract: str = "orders") -> None:
        """Put records there, as the pipeline does: value and rule."""
        table = self.root / "storage" / "tables" / "quarantine"
        first = len(self.quarantined()) if table.exists() else 0
        write_deltalake(str(table), _quarantined(first, contract, records), mode="append")

    def quarantined(self) -> list[dict[str, Any]]:
        table = DeltaTable(str(self.root / "storage" / "tables" / "quarantine"))
        found: list[dict[str, Any]] = table.to_pyarrow_table().sort_by("offset").to_pylist()
        return found


def _quarantined(first: int, contract: str, records: tuple[tuple[bytes, str], ...]) -> Any:
    count = len(records)
    stamp = pa.array([1_800_000_000_000_000] * count, pa.timestamp("us", "UTC"))
    columns = {
        "offset": pa.array(range(first, first + count), pa.int64()),
        "topic": ["orders/a"] * count,
        "value": pa.array([value for value, _ in records], pa.binary()),
        "timestamp": stamp,
        "protocol": ["bpsp"] * count,
        "publisher": ["bob"] * count,
        "headers": pa.array([[]] * count, pa.map_(pa.string(), pa.string())),
        "contract": [contract] * count,
        "rule": [rule for _, rule in records],
        "reason": ["because"] * count,
        "date": stamp.cast(pa.date32()),
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """It has topics of which nothing can be drafted."""
    place = tmp_path_factory.mktemp("contracts")
    with BrokerProcess(place / "data") as running:
        filling = Project(place / "project", running)
        filling.append("texts", b"one", b"two")
        filling.append("empty", b"{}")
        filling.client.close()
        yield running


@pytest.fixture
def project(tmp_path: Path, broker: BrokerProcess) -> Iterator[Project]:
    made = Project(tmp_path / "project", broker)
    yield made
    made.client.close()


# Drafts


def test_a_draft_is_printed_or_written_and_nothing_else_is_said(project: Project) -> None:
    project.append("shop/a", *[b'{"id": %d, "old": 1}' % n for n in range(5)])
    project.append("shop/a", *[b'{"id": %d, "new": true}' % n for n in range(5)])
    printed = project.run_alone("contracts", "infer", "shop/a", "--sample", "5")
    assert (printed.returncode, printed.stderr) == (0, "")  # no bar where nobody looks
    assert "# Drafted from 5 messages" in printed.stdout
    assert "  new:\n" in printed.stdout and "old" not in printed.stdout
    written = project.run("contracts", "infer", "shop/a", "--write")
    file = project.root / "contracts" / "shop_a.yml"
    assert written.stdout == f"wrote {file}; review it before you use it\n"
    assert "# in 5 of 10" in file.read_text()
    again = project.run("contracts", "infer", "shop/a", "--write")
    assert again.stderr == f"headwater: error: {file} exists already; remove it first\n"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("nothing/here",), "there is nothing in the topic nothing/here yet"),
        (("texts",), "none of 2 messages of texts is a JSON object"),
        (("empty",), "no field of empty has a name and a type to write down"),
        (("texts", *NOBODY), "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_drafted_is_one_line(
    project: Project, command: tuple[str, ...], sentence: str
) -> None:
    found = project.run("contracts", "infer", *command)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith("headwater: error: ") and sentence in found.stderr
    assert len(found.stderr.splitlines()) == 1


NAMES = st.sampled_from(
    ["id", "Id", "at", "date", "_offset", "_event_time", "on", "a.b", "1", "#", "a: b", "ü", ""]
) | st.text(max_size=4)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(10**9, 10**10)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4)
    | st.sampled_from(["2026-01-01", "2026-01-01T10:00:00Z", "1"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.lists(st.dictionaries(NAMES, VALUES, max_size=5), min_size=1, max_size=4)


@pytest.mark.property
@given(OBJECTS, st.text(min_size=1, max_size=8))
def test_whatever_a_draft_is_made_from_fits_it(objects: list[Any], topic: str) -> None:
    payloads = [json.dumps(each).encode() for each in objects]
    try:
        draft = inference.draft(inference.summed(topic, payloads))
    except HeadwaterError:
        return  # nothing in it can be declared
    made = parse(draft, Path("draft.yml"))
    assert made.topics.matches(topic)
    for payload in payloads:
        typed(made, payload)


# Redrive


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("--contract", "order"), 'there is no contract "order"; did you mean "orders"?'),
        (("--rule", "rang"), 'there is no rule "rang"; did you mean "range"?'),
        (("--to", "topic", *NOBODY), "127.0.0.1:1"),
    ],
)
def test_what_is_wrong_is_said_at_once(
    project: Project, command: tuple[str, ...], sentence: str
) -> None:
    project.quarantine((b"{", "json"))
    found = project.run("redrive", *command)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith("headwater: error: ") and sentence in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_there_is_nothing_to_redrive(project: Project) -> None:
    assert project.run("redrive").stdout == "no such records are in quarantine\n"
    project.quarantine((b"{", "json"), (b"[", "json"))
    other = project.run("redrive", "--rule", "range", "--yes")
    assert (other.returncode, other.stdout) == (0, "no such records are in quarantine\n")
    assert json.loads(project.run("redrive", "--rule", "range", "--json").stdout) == {
        "records": 0,
        "silver": {},
        "late": 0,
        "repeated": 0,
        "stayed": {},
        "published": 0,
    }
    dry = project.run("redrive", "--to", "topic", "--dry-run", "--json", *NOBODY)
    assert json.loads(dry.stdout)["records"] == 2
    assert len(project.quarantined()) == 2


def test_records_of_a_contract_that_is_gone_can_be_named(project: Project) -> None:
    project.quarantine((b"{", "json"), contract="bygone")
    found = project.run("redrive", "--contract", "bygone", "--to", "topic", "--dry-run")
    assert found.stdout == "1 records\n", found.stderr


def test_records_can_be_chosen_after_some_have_left_quarantine(project: Project) -> None:
    """What deltalake merges, it writes with other types of text."""
    project.quarantine(*[(b"%d" % n, "range" if n % 2 else "json") for n in range(100)])
    table = DeltaTable(str(project.root / "storage" / "tables" / "quarantine"))
    gone = pa.table({"offset": pa.array([0, 1], pa.int64())})
    table.merge(gone, "t.offset = s.offset", "s", "t").when_matched_delete().execute()
    dry = project.run("redrive", "--rule", "range", "--to", "topic", "--dry-run")
    assert dry.stdout == "49 records\n", dry.stderr
    which = ("--from", "quarantine", "--where", "rule = 'range'", "--to", "review/{topic}")
    replayed = project.run("replay", *which, "--name", "mine")
    assert replayed.stdout.startswith("mine: 49 messages in "), replayed.stderr
    assert project.values("review/orders/a") == [b"%d" % n for n in range(3, 100, 2)]


def test_a_person_is_asked_and_may_say_no(project: Project) -> None:
    """On a terminal only: a script could not answer."""
    project.quarantine((b"{", "json"), (b"[", "json"))
    person, terminal = pty.openpty()
    command = [sys.executable, "-m", "headwater", "pipeline", "redrive"]
    with subprocess.Popen(
        [*command, "--to", "topic", "--project", str(project.root)],
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.write(person, b"n\n")
        out, said = process.communicate(timeout=60)
    os.close(person)
    os.close(terminal)
    assert (process.returncode, out.strip()) == (1, "")
    assert "Redrive 2 records to their topics?" in said and "Traceback" not in said
    assert len(project.quarantined()) == 2 and project.values("orders/a") == []


def test_a_dry_run_tells_what_then_happens(project: Project) -> None:
    project.quarantine(
        (b'{"id": 1, "price": -3}', "range"),  # fits now
        (b'{"id": 2, "price": -9}', "range"),
        (b'{"id": 3, "price": -1}', "type"),  # fits now
        (b"{", "json"),
    )
    dry = project.run_alone("redrive", "--dry-run")
    assert (dry.returncode, dry.stderr) == (0, "")  # no bar
    assert dry.stdout.splitlines() == [
        "4 records",
        "  2 to silver_orders",
        "  1 stay in quarantine: json",
        "  1 stay in quarantine: range",
    ]
    assert len(project.quarantined()) == 4
    some = project.run("redrive", "--rule", "range", "--contract", "orders", "--json")
    assert (some.returncode, some.stderr) == (0, "")
    told = json.loads(some.stdout)
    assert (told["records"], told["silver"], told["stayed"]) == (2, {"orders": 1}, {"range": 1})
    assert [row["offset"] for row in project.quarantined()] == [1, 2, 3]
    sent = project.run("redrive", "--to", "topic", "--rule", "json", "--yes")
    assert sent.stdout == "1 records\n  1 published\n", sent.stderr
    assert project.values("orders/a") == [b"{"]
    assert [row["offset"] for row in project.quarantined()] == [1, 2]
