"""Defers the import of pandas until something needs it.

Arrow tries to import pandas together with its datasets, which takes half the time of a short command, and
does not try again before a call that returns something of pandas. So pandas is hidden from that one attempt;
when it is imported later, by this package or by others, Arrow tries again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from inspect import currentframe
from types import ModuleType
from typing import Any


class _HidePandasFromArrow:
    def __init__(self) -> None:
        self.has_hidden = False
        """Whether Arrow looked for pandas and did not get it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "pandas":
            return None
        if _is_this_thread_importing("pyarrow.dataset"):
            self.has_hidden = True
            raise ModuleNotFoundError("pandas is not needed yet", name=fullname)
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        return _tell_arrow_after(next(filter(None, specs), None))


_FINDER = _HidePandasFromArrow()


def defer_pandas_import() -> None:
    """Keep pandas out of the import of Arrow's datasets, unless one of the two is imported already."""
    if "pandas" not in sys.modules and "pyarrow.dataset" not in sys.modules and _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def _is_this_thread_importing(name: str) -> bool:
    """Another thread may import pandas at the same time, and must get it."""
    frame = currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == name:
            return True
        frame = frame.f_back
    return False


def _tell_arrow_after(spec: ModuleSpec | None) -> ModuleSpec | None:
    """Let Arrow try again, once pandas is imported."""
    loader: Any = None if spec is None else spec.loader
    if loader is None:
        return spec
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        if _FINDER in sys.meta_path:
            sys.meta_path.remove(_FINDER)
        # Arrow that has not looked yet may be what imports pandas now, and holds its own lock meanwhile.
        if _FINDER.has_hidden and (arrow := sys.modules.get("pyarrow.lib")) is not None:
            # Arrow refuses an old pandas, which is no reason to refuse it to the program.
            with suppress(ImportError):
                _ = vars(arrow)["_pandas_api"].pd

    loader.exec_module = exec_module
    return spec
