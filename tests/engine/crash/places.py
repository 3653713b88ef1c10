"""Where graphs of the crash matrix are: in folders, or in buckets of a loopback S3 server.

In a bucket the lease of a dead writer runs out only after a while. Here it does at once: a writer that waits
for a lock finds that much time has passed.
"""

from __future__ import annotations

import shutil
from dataclasses import replace

from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location
from omnigraph.storage.locks import BranchLocks, monotonic_seconds
from omnigraph.storage.objects import ObjectStore, Observer
from tests.storage.conftest import ask_s3

ENDLESS = "1e12"
"""Seconds to wait for a lock when the clock jumps with every pause."""

_TTL = 300.0
_AN_AGE = 1_000_000.0
_FOR_AGES = 10 * _AN_AGE
"""How long leases of those last who come later. Waiting for a second lock must not cost them the first: when
the clock jumps no timer renews it in time.
"""


class _Clock:
    """Elapsed time that jumps ahead whenever somebody waits."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return monotonic_seconds() + self._ahead

    def pause(self, _: float) -> None:
        self._ahead += _AN_AGE


def locks_of(objects: ObjectStore, at: Location, *, disturbed: bool = False) -> BranchLocks:
    """The locks of a graph, as somebody uses them who does not wait for leases of the disturbed."""
    if at.is_local:
        return BranchLocks(objects, at)
    clock, ttl = _Clock(), _TTL if disturbed else _FOR_AGES
    return BranchLocks(objects, at, clock=clock, pause=clock.pause, ttl=ttl, reuse_after=0.0)


def root_at(at: Location, observe: Observer | None = None, *, disturbed: bool = False) -> Root:
    """The root of a graph at a place, for somebody who is going to be disturbed or comes later."""
    root = Root.at(at, observe)
    return replace(root, locks=locks_of(root.objects, at, disturbed=disturbed))


def copy_graph(template: Location, at: Location) -> Location:
    """A copy of a graph."""
    if at.is_local:
        shutil.copytree(template.path, at.path)
    else:
        source = {"bucket": template.bucket, "source": template.key}
        assert ask_s3("copy", **source, into=at.bucket, target=at.key) > 0
    return at


def drop_graph(at: Location) -> None:
    """Remove a graph."""
    if at.is_local:
        shutil.rmtree(at.path)
    else:
        assert ask_s3("drop", bucket=at.bucket, prefix=at.key) > 0
