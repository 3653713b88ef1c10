"""Settings that hold for every test."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# `make test` tries a few inputs per property, the same ones each time; `make fuzz` tries many new ones.
# A property that wants more or fewer takes a multiple of `settings.default.max_examples`: both forms scale.
settings.register_profile(
    "short",
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "fuzz",
    max_examples=int(os.environ.get("OMNIGRAPH_FUZZ") or 50_000),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fuzz" if os.environ.get("OMNIGRAPH_FUZZ") else "short")
