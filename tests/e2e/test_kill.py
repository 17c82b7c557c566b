"""kill -9 under load loses nothing acknowledged, repeats nothing: the short `make torture`."""

from pathlib import Path

import pytest

from torture import kill, queues


@pytest.mark.smoke
@pytest.mark.torture
def test_kill_under_load(tmp_path: Path) -> None:
    print(kill.torture(tmp_path, cycles=4, seconds=1.0))


@pytest.mark.smoke
@pytest.mark.torture
def test_kill_while_queues_are_at_work(tmp_path: Path) -> None:
    # Long enough for what is acknowledged in one cycle to be safe when the next one ends.
    print(queues.torture(tmp_path, cycles=3, seconds=4.0))
