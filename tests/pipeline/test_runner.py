"""Projects that run on a real Spark, against a real broker."""

import pytest

from tests.pipeline.conftest import BRONZE, Workbench
from tests.spark.conftest import numbered

pytestmark = pytest.mark.xdist_group("spark")


def test_every_record_is_in_bronze_once(workbench: Workbench) -> None:
    stand = workbench.stand
    workbench.define()
    stand.append("shop/orders", *numbered(0, 50))
    stand.publish("sensors/a", b"21.5", b"\xff\xfe", b"", unit="celsius")
    workbench.run()
    rows = sorted(workbench.rows(), key=lambda row: row["offset"])
    assert [row["value"] for row in rows] == stand.log().column("value").to_pylist()
    assert [row["topic_group"] for row in rows] == ["shop"] * 50 + ["sensors"] * 3
    assert (rows[-1]["publisher"], rows[-1]["headers"]) == ("bob", [("unit", "celsius")])
    assert rows[-1]["date"] == rows[-1]["timestamp"].date()

    stand.append("shop/orders", *numbered(50, 80))
    runner = workbench.run()
    assert workbench.column("offset") == list(range(83))
    state = runner.look()
    (bronze,) = state["tables"]
    assert (bronze["state"], bronze["rows"], bronze["lag"]) == ("done", 83, 0)
    audit = sorted(workbench.rows("audit"), key=lambda row: row["batch"])
    ranges = [(row["table"], row["first"], row["last"], row["rows"]) for row in audit]
    assert ranges == [("bronze", 0, 52, 53), ("bronze", 53, 82, 30)]


MORE = (
    BRONZE
    + """
@dp.temporary_view
def orders():
    return spark.readStream.table("bronze").where("topic LIKE 'shop/%'")

@dp.table
def amounts():
    return spark.readStream.table("orders").selectExpr("offset", "int(string(value)) AS amount")

@dp.materialized_view
def totals():
    return spark.sql("SELECT sum(amount) AS total, count(*) AS n FROM amounts")

@dp.materialized_view
def doubled():
    return spark.read.table("totals").selectExpr("total * 2 AS twice")

dp.create_streaming_table("either")

@dp.append_flow(target="either", name="low")
def low():
    return spark.sql("SELECT offset, 'low' AS kind FROM STREAM amounts WHERE amount < 10")

@dp.append_flow(target="either")
def high():
    return spark.sql("SELECT offset, 'high' AS kind FROM STREAM(amounts) WHERE amount >= 10")

dp.create_sink("back", "headwater", source.sink_options(topic="answers"))

@dp.append_flow(target="back")
def answers():
    return spark.readStream.table("amounts").selectExpr("string(amount) AS value")
"""
)


def test_tables_views_flows_and_sinks(workbench: Workbench) -> None:
    stand = workbench.stand
    workbench.define(MORE)
    workbench.run()  # an empty log
    stand.append("shop/orders", *numbered(0, 20))
    stand.append("other", b"no number")
    workbench.run()
    assert workbench.column("amount", "amounts") == list(range(20))
    assert workbench.rows("totals") == [{"total": 190, "n": 20}]
    assert workbench.rows("doubled") == [{"twice": 380}]
    assert workbench.column("kind", "either") == ["high"] * 10 + ["low"] * 10
    assert sorted(map(int, stand.values("answers"))) == list(range(20))
    version = workbench.table("totals").version

    workbench.run()  # the answers of the sink are new records, of other topics
    assert len(workbench.rows()) == 41
    assert workbench.table("totals").version == version
    assert len(stand.values("answers")) == 20
