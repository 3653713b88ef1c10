"""Declared indexes that are missing or lag, as the result of a write reports them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

PendingIndexes: TypeAlias = Mapping[str, tuple[str, ...]]
"""The columns, by table key."""


def pending_json(pending: PendingIndexes) -> dict[str, list[str]]:
    """What is pending, as plain values."""
    return {key: list(columns) for key, columns in sorted(pending.items())}


def describe_pending(pending: PendingIndexes) -> list[str]:
    """What is pending, a line for each table."""
    return [f"pending indexes on {key}: {', '.join(columns)}" for key, columns in sorted(pending.items())]
