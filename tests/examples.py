"""How many inputs a property test tries, by the profile that `tests/conftest.py` chose."""

from __future__ import annotations

from hypothesis import settings

_chosen = settings.default
assert _chosen is not None, "there is a profile from the first import on"
EXAMPLES = _chosen.max_examples
