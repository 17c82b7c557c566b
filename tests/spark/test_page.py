"""The examples of docs/spark.md and of the command line, on a real broker, in their order."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.cli.spark import EXAMPLE
from tests.e2e.process import BrokerProcess
from tests.generated_docs import ROOT
from tests.spark.conftest import SPARK_TIMEOUT

pytestmark = SPARK_TIMEOUT

PAGE = ROOT / "docs" / "spark.md"
README = ROOT / "README.md"
PLACES = re.compile(r'"((?:checkpoints|lake)/\w+|chk)"')
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text())


def spark_blocks(page: Path) -> list[str]:
    return [block for block in blocks(page) if "headwater.spark" in block]


class Reader:
    """Someone who types in what is on a page, into one Python."""

    def __init__(self, port: int, directory: Path) -> None:
        self._servers = f"127.0.0.1:{port}"
        self._directory = directory
        self.names: dict[str, Any] = {}

    def type_in(self, block: str) -> None:
        # The broker of a test is not at the default address.
        there = f'.format("headwater").option("servers", "{self._servers}")'
        text = block.replace('.format("headwater")', there).replace("localhost:8815", self._servers)
        # Spark writes below the directory that it was started in, and that is not one of a test.
        text = PLACES.sub(rf'"{self._directory}/\1"', text)
        exec(compile(text, "an example", "exec"), self.names)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Reader]:
    """Its `session()` gets the session of all tests."""
    directory = tmp_path_factory.mktemp("page")
    with BrokerProcess(directory / "data") as broker:
        yield Reader(broker.ports["flight"], directory)
        assert {each.name for each in directory.iterdir()} <= {"data", "checkpoints", "chk", "lake"}


@pytest.mark.parametrize("number", range(len(blocks(PAGE))))
def test_examples_of_the_page(number: int, reader: Reader) -> None:
    reader.type_in(blocks(PAGE)[number])


def test_the_example_of_the_shell(
    reader: Reader, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    reader.names["spark"] = spark
    reader.type_in(EXAMPLE.format(servers="localhost:8815"))
    assert "|sensors/a|21.5" in capsys.readouterr().out


@pytest.mark.smoke
def test_the_example_of_the_readme(reader: Reader, spark: SparkSession) -> None:
    (block,) = spark_blocks(README)
    reader.type_in(block)
    (query,) = spark.streams.active
    query.processAllAvailable()
    query.stop()
    assert query.exception() is None


def test_there_are_examples() -> None:
    """Otherwise a mistake in this file would make everything above pass."""
    assert len(blocks(PAGE)) >= 6
