"""Checks of numeric arguments; errors name the argument."""

from __future__ import annotations

from numbers import Integral, Real

from omnigraph.errors import InvalidValue


def require_whole(name: str, given: object, least: int) -> int:
    """Return a whole number of at least `least`; unlike Python, a Boolean is none."""
    if type(given) is bool or not isinstance(given, Integral):
        raise InvalidValue(f"{name} must be a whole number, got {given!r}")
    if given < least:
        raise InvalidValue(f"{name} must be at least {least}, got {given}")
    return int(given)


def require_number(name: str, given: object) -> None:
    """Raise `InvalidValue` unless the argument is a number."""
    if type(given) is bool or not isinstance(given, Real):
        raise InvalidValue(f"{name} must be a number, got {given!r}")
