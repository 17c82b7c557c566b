"""spark-pipeline.yml: found, read, and refused with the line that is wrong."""

from pathlib import Path

import pytest

from headwater.errors import ConfigError, HeadwaterError
from headwater.pipeline import contracts
from headwater.pipeline.definitions.sql import statements
from headwater.pipeline.project import init, project

GOOD = """\
name: shop
storage: storage
libraries:
  - glob:
      include: transformations/**
configuration:
  headwater.servers: broker:8815
  spark.sql.shuffle.partitions: "3"
"""


def write(directory: Path, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "spark-pipeline.yml").write_text(text)
    return directory


def test_a_project_is_found_from_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, GOOD)
    below = tmp_path / "transformations" / "more"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    found = project.load()
    assert (found.name, found.servers) == ("shop", "broker:8815")
    assert found.storage == tmp_path / "storage"
    assert found.setting("contracts") == str(tmp_path / "contracts")
    for name in ("b.py", "a.sql", "more/c.py", "__pycache__/d.py", "notes.md"):
        place = tmp_path / "transformations" / name
        place.parent.mkdir(exist_ok=True)
        place.write_text("")
    assert [each.name for each in found.definitions()] == ["a.sql", "b.py", "c.py"]


def test_the_broker_is_where_the_nearest_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = write(tmp_path / "told", GOOD)
    silent = write(tmp_path / "silent", "name: shop\nstorage: s\n")
    monkeypatch.delenv("HEADWATER_CONFIG", raising=False)
    assert project.load(told, "flag:1").servers == "flag:1"
    assert project.load(told).servers == "broker:8815"
    assert project.load(silent).servers == "localhost:8815"
    (tmp_path / "headwater.toml").write_text('[listen]\nflight = "0.0.0.0:9999"\n')
    monkeypatch.setenv("HEADWATER_CONFIG", str(tmp_path / "headwater.toml"))
    assert project.load(silent).servers == "localhost:9999"
    assert project.load(told).servers == "broker:8815"


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("", "spark-pipeline.yml is empty"),
        ("name: [", "line 1: "),
        ("- a\n", "line 1: the file must have keys and values"),
        ("name: shop\n", 'line 1: the key "storage" is missing'),
        ("name: a\nstorage: b\nlibrary: c\n", 'line 3: there is no key "library"'),
        ("name: a\nstorage: {}\n", 'line 2: "storage" must be a text'),
        ("name: a\nstorage: s3://bucket/x\n", "storage must be a directory"),
        (
            "name: a\nstorage: b\nconfiguration:\n  headwater.server: c\n",
            'line 4: there is no setting "headwater.server"; did you mean "headwater.servers"?',
        ),
        (
            "name: a\nstorage: b\nconfiguration:\n  headwater.format: orc\n",
            'line 4: headwater.format must be one of delta-rs, delta, iceberg, parquet, not "orc"',
        ),
        ("name: a\nstorage: b\nlibraries:\n  - file: x\n", 'line 4: an entry of libraries needs "'),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as told:
        project.load(write(tmp_path, text))
    assert sentence in str(told.value)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("", (None, None)),
        ("catalog: lake\ndatabase: shop\n", ("lake", "shop")),
        ("schema: shop\n", (None, "shop")),
        ("catalog:\ndatabase: shop\nschema: other\n", (None, "shop")),
    ],
)
def test_a_server_gets_catalog_and_database(
    tmp_path: Path, written: str, found: tuple[str | None, str | None]
) -> None:
    loaded = project.load(write(tmp_path, f"name: a\nstorage: b\n{written}"))
    assert (loaded.catalog, loaded.database) == found


def test_without_a_project_there_is_advice(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="make a project with `headwater pipeline init DIR`"):
        project.load(tmp_path)


def test_init_never_overwrites(tmp_path: Path) -> None:
    made = init.make(tmp_path / "my project")
    found = project.load(tmp_path / "my project")
    assert found.name == "my_project"
    assert found.storage == tmp_path / "my project" / "storage"
    names = {each.name for each in found.definitions()}
    assert names == {"bronze.py", "contracts.py", "examples.py", "gold.py"}
    (contract,) = contracts.load(found.setting("contracts"))
    assert contract.name == "orders"
    made[0].write_text("mine")
    with pytest.raises(HeadwaterError, match="is there already"):
        init.make(tmp_path / "my project")
    assert made[0].read_text() == "mine"


def test_definitions_in_sql() -> None:
    text = """
    -- a comment; with a semicolon
    CREATE OR REFRESH STREAMING TABLE big COMMENT 'such AS this; or that'
      PARTITIONED BY (date, topic_group) TBLPROPERTIES ('headwater.retention' = '30d')
      AS SELECT * FROM STREAM bronze WHERE topic <> ';';

    CREATE MATERIALIZED VIEW totals AS WITH x AS (SELECT 1) SELECT * FROM x;
    CREATE TEMPORARY VIEW some AS SELECT 1
    """
    big, totals, some = statements(text, Path("a.sql"))
    assert (big.output.name, totals.output.name, some.output.name) == ("big", "totals", "some")
    assert big.output.partition_cols == ["date", "topic_group"]  # type: ignore[attr-defined]
    assert big.output.table_properties == {"headwater.retention": "30d"}  # type: ignore[attr-defined]
    assert big.query == "SELECT * FROM STREAM bronze WHERE topic <> ';'"
    assert totals.query == "WITH x AS (SELECT 1) SELECT * FROM x"
    with pytest.raises(HeadwaterError, match=r"a.sql, line 1: only CREATE STREAMING TABLE"):
        list(statements("SELECT 1;\nDROP TABLE x", Path("a.sql")))
