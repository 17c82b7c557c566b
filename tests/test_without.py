"""What a broker goes without, and that Arrow works all the same."""

import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.process import BrokerProcess

PROGRAM = """
import sys
from headwater import without
without.keep_out(without.BROKERS)
import pyarrow as pa
import pyarrow.flight
from headwater import arrow_compute as pc
assert pa.array([1, 2]).to_pylist() == [1, 2]
assert "pyarrow.compute" not in sys.modules
assert pc.unique(pa.array(["a", "a"])).to_pylist() == ["a"]
assert not {"numpy", "pandas"} & sys.modules.keys()
"""


def test_arrow_works_without_them() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


def test_a_broker_goes_without_them(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        mapped = Path(f"/proc/{broker.pid}/maps").read_text()
    assert "libarrow.so" in mapped
    assert not re.findall(r"site-packages/(?:numpy|pandas)/", mapped)
