from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.process import BrokerProcess


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Brokers run on uvloop. A few tests see to it that they run on asyncio's own loop as well."""
    if "loop" in metafunc.fixturenames and metafunc.definition.get_closest_marker("both_loops"):
        metafunc.parametrize("loop", ["uvloop", "asyncio"], indirect=True)


@pytest.fixture
def loop(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "uvloop"))


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """For tests that neither stop it nor mind what others have published; durable subscribers have
    topics and identities of their own. It must not have logged a traceback."""
    with BrokerProcess(tmp_path_factory.mktemp("shared") / "data") as running:
        yield running
        assert running.stop() == 0
    assert "Traceback" not in running.log


@pytest.fixture
def broker(loop: str, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A running broker. It must not have logged a traceback."""
    with BrokerProcess(tmp_path / "data", HEADWATER_LOOP=loop) as running:
        yield running
        assert running.stop() == 0
    assert "Traceback" not in running.log
