"""Hypothesis profiles: quick by default, long for `make fuzz` (HYPOTHESIS_PROFILE=fuzz)."""

import os

from hypothesis import HealthCheck, settings

# No deadline: what is slow once, on a busy machine, is no failure.
settings.register_profile("default", max_examples=60, deadline=None)
settings.register_profile(
    "fuzz",
    max_examples=20_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
