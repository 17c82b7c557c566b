import subprocess
import sys

PROGRAM = """
import sys
from headwater.without_pandas import keep_pandas_out
keep_pandas_out()
import pyarrow as pa
import pyarrow.flight
assert pa.array([1, 2]).to_pylist() == [1, 2]
assert "pandas" not in sys.modules
"""


def test_arrow_works_without_it() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
