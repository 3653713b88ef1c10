"""What the manifest of main says, on file: a new process reads only the fragments that came since.

Rows of a manifest come or are written anew, and none ever goes. So a state and the rows of all fragments that
it does not know add up to the state now, if both are of one table: names of data files never repeat.

The file is derived. It may be lost, damaged or out of date at any time, and only costs time then. Other
branches have none: most are short, and their names live several lives.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.lineage import Commit
from omnigraph.engine.manifest import CREATED_AT, HEAD, MAIN, State, TableVersion, decode
from omnigraph.engine.root import Root
from omnigraph.errors import StorageFailure
from omnigraph.storage.location import Location

FORMAT = 1
FILE = "main.state"
WORTH_KEEPING = 4
"""Fragments below which reading them is as fast as reading a file."""

_MARK = b"\x89OGSTATE"
_START = struct.Struct("<8sII")  # mark, format, checksum of the rest

_log = logging.getLogger(__name__)

_CommitFacts = tuple[str, str, int, int, str | None, str | None, str | None]
_commit_facts = attrgetter("id", "branch", "version", "created_at", "parent", "merged_parent", "actor")
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


_decoder = msgspec.json.Decoder(_Body)


@dataclass(frozen=True, slots=True)
class KeptState:
    """A state of main, and the fragments in which its manifest was stored then, with their files."""

    state: State
    head: str
    files: Mapping[int, str]

    def unread(self, stored: Mapping[int, str]) -> list[int] | None:
        """Which fragments of a manifest are not known; None when this state has nothing to tell of it.

        `stored` are the fragments by number, each with the name of its file.
        """
        unread = [number for number, name in stored.items() if self.files.get(number) != name]
        # Files only go when others come in their place, and numbers never come again, unless somebody put
        # back an older manifest.
        is_other = any(number in self.files for number in unread) or len(unread) == len(stored)
        return None if is_other or (not unread and len(stored) < len(self.files)) else unread

    def plus(self, rows: pa.Table, version: int) -> State | None:
        """The state with the rows of fragments that were not known; None when it did not lead to them.

        It does not where an older manifest was put back and written on, or that of another graph.
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
        """Whether rows that are as old as this state tell nothing that is not in it; heads come again."""
        was_there = pc.less_equal(rows.column(CREATED_AT), self.state.version)
        old = rows.filter(pc.and_(was_there, pc.not_equal(rows.column("object_type"), HEAD)))
        if not len(old):
            return True
        known = self.state
        same = known.plus(decode(old), known.version)
        return (same.locations, same.versions, same.tombstones, same.commits.keys()) == (
            known.locations,
            known.versions,
            known.tombstones,
            known.commits.keys(),
        )

    def at(self, version: int) -> State:
        """The state at a version in which no row came."""
        return replace(self.state, version=version)


def kept_state(root: Root) -> KeptState | None:
    """The state that is on file, if any."""
    try:
        data = root.objects.read_bytes_if_exists(_place(root))
    except StorageFailure as failure:
        _log.warning("all of the manifest is read: %s", failure)
        return None
    body = None if data is None else _checked(data)
    return None if body is None else _found(body)


def keep_state(root: Root, state: State, files: Mapping[int, str]) -> None:
    """Put a state on file for the next process; a store that refuses is left alone."""
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
        )
    )
    try:
        root.objects.write_bytes(_place(root), _START.pack(_MARK, FORMAT, zlib.crc32(body)) + body)
    except StorageFailure as failure:
        # Only the next process is slower for it.
        _log.warning("the state of main was not kept: %s", failure)


def _place(root: Root) -> Location:
    return root.layout.derived / FILE


def _checked(data: bytes) -> _Body | None:
    """What is in a file, unless it is damaged or of another format."""
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


def _found(body: _Body) -> KeptState | None:
    commits = {facts[0]: Commit(*facts) for facts in body.commits}
    if body.head not in commits:
        return None
    versions = {facts[0]: TableVersion(*facts) for facts in body.versions}
    state = State(
        body.version,
        body.locations,
        versions,
        body.tombstones,
        commits,
        body.heads,
        commits[body.head],
    )
    return KeptState(state, body.head, body.files)
