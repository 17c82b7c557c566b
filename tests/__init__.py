"""The tests look at plain Python, in their own process: they replace parts of modules, and want to
show a stack. The programs that they start are compiled, as everywhere, if set-up could do that.

`make test-compiled` runs those tests that can do with it on compiled modules.
"""

import os

import headwater.compiled

COMPILED = os.environ.get("TEST_COMPILED", "") not in ("", "0")

if COMPILED and headwater.compiled.state != "compiled":
    raise SystemExit(f"make .venv/compiled first: here is {headwater.compiled.state}")
if not COMPILED:
    headwater.compiled.avoid()
