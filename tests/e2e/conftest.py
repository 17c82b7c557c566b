from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.process import BrokerProcess


@pytest.fixture(params=["uvloop", "asyncio"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A running broker, on either event loop. It must not have logged a traceback."""
    with BrokerProcess(tmp_path / "data", HEADWATER_LOOP=request.param) as running:
        yield running
        assert running.stop() == 0
    assert "Traceback" not in running.log
