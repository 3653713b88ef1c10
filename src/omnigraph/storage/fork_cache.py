"""A cache of open forks: one Lance session per branch, and handles of pinned versions.

Lance caches by location and version number. Both repeat when a branch is deleted and created again, so a
session serves one incarnation of a fork only. All forks of a branch share a session, as their locations
differ; when one of them turns out to be another incarnation, the whole entry of the branch is dropped.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import field
from typing import Generic, TypeVar

from lance.dataset import Session  # type: ignore[attr-defined]  # public in its documentation only

from omnigraph.deferred_dataclass import dataclass
from omnigraph.storage.references import Incarnation
from omnigraph.storage.session import BRANCHES, fork_generation, fork_session

_HANDLES = 64

_Handle = TypeVar("_Handle")


@dataclass(slots=True)
class _Branch(Generic[_Handle]):
    session: Session = field(default_factory=fork_session)
    incarnations: dict[str, Incarnation] = field(default_factory=dict)
    """By the location of a fork."""
    handles: OrderedDict[tuple[str, int], _Handle] = field(default_factory=OrderedDict)
    """By the location of a fork and a version."""


class ForkCache(Generic[_Handle]):
    """Sessions and handles of the most recently used branches; safe to share between threads."""

    def __init__(self) -> None:
        self._branches: OrderedDict[str, _Branch[_Handle]] = OrderedDict()
        self._generation = fork_generation()
        self._lock = threading.Lock()

    def session(self, branch: str, uri: str, incarnation: Incarnation) -> Session:
        """Return the session of one incarnation of a fork; it never read another incarnation."""
        with self._lock:
            return self._of(branch, uri, incarnation).session

    def find(self, branch: str, uri: str, incarnation: Incarnation, version: int) -> _Handle | None:
        """Return the cached handle of a version, if there is one."""
        with self._lock:
            handles = self._of(branch, uri, incarnation).handles
            found = handles.get((uri, version))
            if found is not None:
                handles.move_to_end((uri, version))
            return found

    def keep(self, branch: str, uri: str, incarnation: Incarnation, version: int, handle: _Handle) -> _Handle:
        """Cache the handle of a version, and return the one that was cached first."""
        with self._lock:
            handles = self._of(branch, uri, incarnation).handles
            kept = handles.setdefault((uri, version), handle)
            while len(handles) > _HANDLES:
                handles.popitem(last=False)
            return kept

    def drop(self, branch: str) -> None:
        """Drop everything cached for a branch."""
        with self._lock:
            self._branches.pop(branch, None)

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._branches.clear()

    def __len__(self) -> int:
        with self._lock:
            return len(self._branches)

    def _of(self, branch: str, uri: str, incarnation: Incarnation) -> _Branch[_Handle]:
        if self._generation != fork_generation():
            # A session owns threads that do not survive a fork of the process.
            self._branches.clear()
            self._generation = fork_generation()
        known = self._branches.get(branch)
        if known is None or known.incarnations.get(uri, incarnation) != incarnation:
            known = self._branches[branch] = _Branch()
        known.incarnations[uri] = incarnation
        self._branches.move_to_end(branch)
        while len(self._branches) > BRANCHES:
            self._branches.popitem(last=False)
        return known
