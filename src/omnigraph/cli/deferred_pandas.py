"""Defers the import of pandas until something needs it.

Arrow tries to import pandas together with its datasets, which takes half the time of a short command. It
tries again later: a call that needs pandas imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _HidePandasFromArrow(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if fullname == "pandas" and _is_being_imported("pyarrow.dataset"):
            raise ModuleNotFoundError("pandas is not needed yet", name=fullname)
        return None


def _is_being_imported(name: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def defer_pandas_import() -> None:
    """Defer it in this process, which must be our own: other code with Arrow may depend on pandas."""
    sys.meta_path.insert(0, _HidePandasFromArrow())
