"""Pandas is imported when something needs it, and not because Arrow looks whether it is there.

Arrow looks as its datasets are imported, which takes half the time a short command takes in all. What it is
told then it does not believe for ever: a call that needs pandas imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NotWhileArrowLooks(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if fullname == "pandas" and _is_being_imported("pyarrow.dataset"):
            raise ModuleNotFoundError("pandas is not needed yet", name=fullname)
        return None


def _is_being_imported(name: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def import_pandas_later() -> None:
    """Hold for this process, which must be our own: what others do with Arrow may depend on pandas."""
    sys.meta_path.insert(0, _NotWhileArrowLooks())
