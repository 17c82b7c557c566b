"""Hypothesis profiles: quick by default, long for `make fuzz` (HYPOTHESIS_PROFILE=fuzz)."""

import os

from hypothesis import HealthCheck, settings

# No deadline: what is slow once, on a busy machine, is no failure. Not derandomized, on CI neither:
# every run looks at other examples.
settings.register_profile("default", max_examples=60, deadline=None, derandomize=False)
settings.register_profile(
    "fuzz",
    parent=settings.get_profile("default"),
    max_examples=20_000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
