"""The packages that draw; only pictures need them."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from omnigraph.errors import MissingExtra

NEEDED = ("igraph", "ipysigma", "matplotlib")


def require_packages() -> None:
    """Fail before anything is read when a package for pictures is not installed."""
    for name in NEEDED:
        if find_spec(name) is None:
            raise MissingExtra("draw", package=name, extra="notebook")


def load_package(name: str) -> Any:
    """A module of one of them, loaded when the first picture needs it."""
    return import_module(name)
