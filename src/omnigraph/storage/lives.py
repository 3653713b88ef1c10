"""What is kept of the forks of a graph: the session that read them, and handles, of the life they have now.

What Lance keeps goes by the place and number of a version. Both repeat when a branch is deleted and made
anew, so a session serves one life of a fork and no other. All forks of a branch share one, as their places
differ; when any of them is found in another life, everything that is kept of the branch goes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lance.dataset import Session  # type: ignore[attr-defined]  # public in its documentation only

from omnigraph.storage.references import Identity
from omnigraph.storage.session import BRANCHES, fork_session, generation

_HANDLES = 64

_Handle = TypeVar("_Handle")


@dataclass(slots=True)
class _Branch(Generic[_Handle]):
    session: Session = field(default_factory=fork_session)
    lives: dict[str, Identity] = field(default_factory=dict)
    """By the place of a fork."""
    handles: OrderedDict[tuple[str, int], _Handle] = field(default_factory=OrderedDict)
    """By the place of a fork and a version."""


class Lives(Generic[_Handle]):
    """What is kept of forks, by branch: of those used last; safe to share between threads."""

    def __init__(self) -> None:
        self._branches: OrderedDict[str, _Branch[_Handle]] = OrderedDict()
        self._generation = generation()
        self._lock = threading.Lock()

    def session(self, branch: str, uri: str, life: Identity) -> Session:
        """The session for one life of a fork, with which nobody read anything of another one."""
        with self._lock:
            return self._of(branch, uri, life).session

    def find(self, branch: str, uri: str, life: Identity, version: int) -> _Handle | None:
        """The handle of a version that was kept."""
        with self._lock:
            handles = self._of(branch, uri, life).handles
            found = handles.get((uri, version))
            if found is not None:
                handles.move_to_end((uri, version))
            return found

    def keep(self, branch: str, uri: str, life: Identity, version: int, handle: _Handle) -> _Handle:
        """Keep a handle of a version, or give the one that was kept meanwhile."""
        with self._lock:
            handles = self._of(branch, uri, life).handles
            kept = handles.setdefault((uri, version), handle)
            while len(handles) > _HANDLES:
                handles.popitem(last=False)
            return kept

    def drop(self, branch: str) -> None:
        """Keep nothing of a branch."""
        with self._lock:
            self._branches.pop(branch, None)

    def clear(self) -> None:
        """Keep nothing at all."""
        with self._lock:
            self._branches.clear()

    def __len__(self) -> int:
        with self._lock:
            return len(self._branches)

    def _of(self, branch: str, uri: str, life: Identity) -> _Branch[_Handle]:
        if self._generation != generation():
            # A session owns threads that do not survive a fork of the process.
            self._branches.clear()
            self._generation = generation()
        known = self._branches.get(branch)
        if known is None or known.lives.get(uri, life) != life:
            known = self._branches[branch] = _Branch()
        known.lives[uri] = life
        self._branches.move_to_end(branch)
        while len(self._branches) > BRANCHES:
            self._branches.popitem(last=False)
        return known
