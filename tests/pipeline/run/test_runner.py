"""Projects that run on a real Spark, against a real broker."""

import json

import pytest

from headwater.errors import HeadwaterError
from tests.pipeline.conftest import BRONZE, Workbench
from tests.spark.conftest import numbered

pytestmark = pytest.mark.timeout(400)


@pytest.mark.smoke
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


@pytest.mark.smoke
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


PUBLISHED = (
    BRONZE
    + """
@dp.table(table_properties={"headwater.keys": "topic", "headwater.publish": "stats/counts"})
def counts():
    return source.frame().where("topic LIKE 'shop/%'").groupBy("topic").count()
"""
)


def test_rows_are_published_once(workbench: Workbench) -> None:
    stand = workbench.stand
    workbench.define(PUBLISHED)
    workbench.define("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM counts;", "n.sql")
    stand.append("shop/a", b"1", b"2")
    workbench.run()
    stand.append("shop/a", b"3")
    stand.append("shop/b", b"1")
    workbench.run()
    found = {row["topic"]: row["count"] for row in workbench.rows("counts")}
    assert found == {"shop/a": 3, "shop/b": 1}
    assert workbench.rows("n") == [{"n": 2}]
    published = [json.loads(value)["count"] for value in stand.values("stats/counts/shop/a")]
    assert published == [2, 3]
    # A batch that is repeated is in the table, and was published.
    checkpoint = workbench.project.checkpoints / "counts"
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    newest.unlink()
    workbench.run()
    assert {row["topic"]: row["count"] for row in workbench.rows("counts")} == found
    assert len(stand.values("stats/counts/shop/a")) == 2


def test_plain_files_are_a_choice(workbench: Workbench) -> None:
    workbench.settings["headwater.format"] = "parquet"
    workbench.define(
        BRONZE
        + """
@dp.materialized_view
def topics():
    return spark.table("bronze").groupBy("topic").count()
"""
    )
    workbench.stand.append("a", *numbered(0, 5))
    workbench.run()
    workbench.stand.append("a", *numbered(5, 8))
    workbench.run()
    place = workbench.project.tables
    read = workbench.spark.read.parquet
    assert sorted(row.offset for row in read(str(place / "bronze")).collect()) == list(range(8))
    assert [row["count"] for row in read(str(place / "topics")).collect()] == [8]
    workbench.settings["headwater.format"] = "iceberg"
    workbench.define()
    with pytest.raises(HeadwaterError, match="this Spark has no such format: add its jar"):
        workbench.run()
