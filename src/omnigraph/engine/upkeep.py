"""Keeping the manifest cheap, so that the thousandth commit costs what the tenth did."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from omnigraph.engine.coordinator import Coordinator
from omnigraph.engine.publish import Changes, ExactHead, Lineage, Publication, publish
from omnigraph.errors import OmnigraphError
from omnigraph.storage.locks import Held
from omnigraph.storage.upkeep import compact

FRAGMENT_LIMIT = 30
"""Every publish adds a fragment, and a write costs as much as there are fragments."""

_log = logging.getLogger(__name__)


def compact_manifest(coordinator: Coordinator) -> bool:
    """Compact a branch's manifest once it has many fragments; callers hold the branch lock.

    Rows, their ids and the versions that made them stay. A failure is no news for whoever published
    just before: the next publish tries again.
    """
    try:
        table = coordinator.load().table
        if table.fragment_count <= FRAGMENT_LIMIT:
            return False
        compact(table)
    except OmnigraphError as failure:
        _log.warning("the manifest of branch '%s' was not compacted: %s", coordinator.branch, failure)
        return False
    return True


def publish_and_tidy(
    coordinator: Coordinator,
    held: Held,
    changes: Changes,
    lineage: Lineage,
    *,
    expected: Mapping[str, int] | None = None,
    precondition: ExactHead | None = None,
) -> Publication:
    """Publish under the branch lock that is held, then compact the manifest where that is due."""
    held.require()
    done = publish(coordinator, changes, lineage, expected=expected, precondition=precondition)
    # The publish itself shows how many fragments there are: in most cases nothing more is asked.
    if done.loaded.table.fragment_count > FRAGMENT_LIMIT and held.still_held():
        compact_manifest(coordinator)
    return done
