"""One broker for the tests that do not mind what others did to it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.console.stand import client_of, console_of
from tests.e2e.process import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory: Path = tmp_path_factory.mktemp("console")
    with console_of(directory / "data") as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with client_of(broker) as made:
        yield made
