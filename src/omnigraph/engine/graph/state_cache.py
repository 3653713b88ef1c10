"""The cached state of main's manifest: a new process reads only the fragments that came since.

Manifest rows are added or rewritten, never removed. So a cached state plus the rows of all fragments that it
does not cover is the current state, if both are of one table: names of data files never repeat.

The cache may be lost, damaged or out of date at any time; that only costs time. Other branches have none:
most are short, and a name can have several incarnations.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import CREATED_AT, HEAD, MAIN, ManifestState, TableVersion, decode
from omnigraph.engine.graph.root import Root
from omnigraph.errors import StorageFailure
from omnigraph.storage.location import Location

FORMAT = 3
FILE = "main.state"
MIN_FRAGMENTS = 4
"""With fewer fragments, reading them is as fast as reading the cache."""

_MARK = b"\x89OGSTATE"
_START = struct.Struct("<8sII")  # mark, format, checksum of the body

_log = logging.getLogger(__name__)

_CommitFacts = tuple[str, str, int, int, str | None, str | None, str | None, str | None, str | None]
_commit_facts = attrgetter(
    "id", "branch", "version", "created_at", "parent", "merged_parent", "actor", "message", "operation"
)
_VersionFacts = tuple[str, int, str | None, int | None]
_version_facts = attrgetter("key", "version", "owner", "row_count")


class _Body(msgspec.Struct, frozen=True):
    version: int
    files: dict[int, str]
    locations: dict[str, str]
    versions: list[_VersionFacts]
    tombstones: dict[str, int]
    commits: list[_CommitFacts]
    heads: dict[str, str]
    head: str
    merged: list[_CommitFacts]


_decoder = msgspec.json.Decoder(_Body)


@dataclass(frozen=True, slots=True)
class CachedState:
    """A state of main, and the fragments in which its manifest was stored then, with their files."""

    state: ManifestState
    head: str
    files: Mapping[int, str]

    def unread(self, stored: Mapping[int, str]) -> list[int] | None:
        """Return the fragments of a manifest that are not covered; None when the cache does not apply.

        `stored` are the fragments by number, each with the name of its file.
        """
        unread = [number for number, name in stored.items() if self.files.get(number) != name]
        # Files are only removed when others replace them, and numbers never repeat, unless an older manifest
        # was restored.
        is_other = any(number in self.files for number in unread) or len(unread) == len(stored)
        return None if is_other or (not unread and len(stored) < len(self.files)) else unread

    def plus(self, rows: pa.Table, version: int) -> ManifestState | None:
        """Return the state with the rows of uncovered fragments; None when they do not continue it.

        They do not when an older manifest was restored and written to, or that of another graph.
        """
        if not self._knows(rows):
            return None
        records = decode(rows)
        came = {commit.id: commit for commit in records.commits}
        at = records.heads.get(MAIN)
        while at != self.head:
            if at not in came:
                return None
            at = came[at].parent
        return self.state.plus(records, version)

    def _knows(self, rows: pa.Table) -> bool:
        """Whether the state has everything that rows of its age say; head rows are rewritten, and ignored."""
        was_there = pc.less_equal(rows.column(CREATED_AT), self.state.version)
        old = rows.filter(pc.and_(was_there, pc.not_equal(rows.column("object_type"), HEAD)))
        if not len(old):
            return True
        known = self.state
        same = known.plus(decode(old), known.version)
        return _facts(same) == _facts(known)

    def at(self, version: int) -> ManifestState:
        """Return the state at a version that added no row."""
        return replace(self.state, version=version)


def _facts(state: ManifestState) -> tuple[object, ...]:
    return (
        state.locations,
        state.versions,
        state.tombstones,
        state.commits.keys(),
        state.merged.keys(),
    )


def read_cached_state(root: Root) -> CachedState | None:
    """Return the cached state, if there is one."""
    try:
        data = root.objects.read_bytes_if_exists(_place(root))
    except StorageFailure as failure:
        _log.warning("the whole manifest is read: %s", failure)
        return None
    body = None if data is None else _decode_body(data)
    return None if body is None else _to_state(body)


def write_cached_state(root: Root, state: ManifestState, files: Mapping[int, str]) -> None:
    """Cache a state for the next process; a failed write is logged."""
    if state.head is None:
        return
    body = msgspec.json.encode(
        _Body(
            state.version,
            dict(files),
            dict(state.locations),
            [_version_facts(one) for one in state.versions.values()],
            dict(state.tombstones),
            [_commit_facts(commit) for commit in state.commits.values()],
            dict(state.heads),
            state.head.id,
            [_commit_facts(commit) for commit in state.merged.values()],
        )
    )
    try:
        root.objects.write_bytes(_place(root), _START.pack(_MARK, FORMAT, zlib.crc32(body)) + body)
    except StorageFailure as failure:
        # Only the next process is slower for it.
        _log.warning("the state of main was not cached: %s", failure)


def _place(root: Root) -> Location:
    return root.layout.derived / FILE


def _decode_body(data: bytes) -> _Body | None:
    """Return the body of a file, unless it is damaged or of another format."""
    if len(data) < _START.size:
        return None
    mark, number, checksum = _START.unpack_from(data)
    body = memoryview(data)[_START.size :]
    if mark != _MARK or number != FORMAT or zlib.crc32(body) != checksum:
        return None
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError:
        return None  # another program wrote it


def _to_state(body: _Body) -> CachedState | None:
    commits = {facts[0]: Commit(*facts) for facts in body.commits}
    if body.head not in commits:
        return None
    versions = {facts[0]: TableVersion(*facts) for facts in body.versions}
    state = ManifestState(
        body.version,
        body.locations,
        versions,
        body.tombstones,
        commits,
        body.heads,
        commits[body.head],
        {facts[0]: Commit(*facts) for facts in body.merged},
    )
    return CachedState(state, body.head, body.files)
