"""kill -9 under load loses nothing acknowledged, repeats nothing: the short `make torture`."""

from pathlib import Path

from torture import kill


def test_kill_under_load(tmp_path: Path) -> None:
    print(kill.torture(tmp_path, cycles=4, seconds=1.0))
