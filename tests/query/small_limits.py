"""Limits lowered, so that a few rows are read as millions would be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from omnigraph.query import counted_branches, group_and_sort, index_hop, rows, scan
from omnigraph.query.search import searches
from omnigraph.query.topology import topology


@contextmanager
def other_ways() -> Iterator[None]:
    """Whatever is done for large tables only."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(rows, "SMALL", 2)
        changed.setattr(rows, "COLD_SHARE", 1)
        changed.setattr(rows, "_FEW", 1)
        changed.setattr(rows, "_PASSES", 2)
        changed.setattr(topology, "_MUCH", 0)
        changed.setattr(scan, "LARGE", 2)
        changed.setattr(index_hop, "LARGE", 2)
        changed.setattr(index_hop, "_SORT", 0.7)
        changed.setattr(counted_branches, "_WORTH_MERGING", 0)
        changed.setattr(group_and_sort, "_WORTH_SELECTING", 2)
        changed.setattr(searches, "EXACT_BYTES", 0)
        yield


@contextmanager
def through_indexes() -> Iterator[None]:
    """The same, and hops never come to cost as much as sorting all edges."""
    with other_ways(), pytest.MonkeyPatch.context() as changed:
        changed.setattr(index_hop, "LARGE", 1)
        changed.setattr(index_hop, "_SORT", 1000.0)
        changed.setattr(scan, "LARGE", 1)
        changed.setattr(rows, "SMALL", 0)
        yield
