"""The changes of a branch, commit by commit, from where a reader stopped."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from typing import Any

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes.change import ChangeCounts, ChangeFilter
from omnigraph.engine.changes.diff import ChangePlace, Diff
from omnigraph.engine.graph.lineage import Commit, walk_first_parents
from omnigraph.engine.graph.open_graph import AtVersion, OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.errors import (
    ChangeCursorRejected,
    ChangeDiffRefused,
    ChangeFeedGap,
    HistoricalVersionReclaimed,
    OmnigraphError,
    VersionNotFound,
)
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.storage.references import Incarnation

_CURSOR, _PAGE = "c1.", "p1."


@dataclass(frozen=True, slots=True)
class TokenBinding:
    """What a token belongs to."""

    graph: str
    """The id of the first commit, which no other graph has."""
    branch: str
    incarnation: str
    filter: str

    @classmethod
    def of(cls, graph: str, branch: str, incarnation: Incarnation, wanted: ChangeFilter) -> TokenBinding:
        """The binding of tokens for a branch and a filter."""
        return cls(graph, branch, _digest([list(part) for part in incarnation]), _digest(wanted.to_json()))

    def require(self, other: TokenBinding) -> None:
        """Fail when a token belongs to something else."""
        if other.graph != self.graph:
            raise ChangeCursorRejected("it belongs to another graph")
        if other.branch != self.branch:
            raise ChangeCursorRejected(f"it belongs to branch '{other.branch}'")
        if other.incarnation != self.incarnation:
            raise ChangeCursorRejected(f"branch '{self.branch}' was deleted and made again since")
        if other.filter != self.filter:
            raise ChangeCursorRejected("it was made with another filter")


@dataclass(frozen=True, slots=True)
class Position:
    """A position after a commit; within an answer also its last commit and the last change returned."""

    after: str | None
    until: str | None = None
    place: ChangePlace | None = None


def encode_cursor(binding: TokenBinding, after: str | None) -> str:
    """Return the cursor for a position after a whole commit."""
    return _CURSOR + _encode(binding, Position(after))


def encode_page_token(binding: TokenBinding, position: Position) -> str:
    """Return the page token for a position within an answer."""
    return _PAGE + _encode(binding, position)


def decode_cursor(binding: TokenBinding, text: str) -> Position:
    """Return the position of a cursor."""
    return replace(_decode(binding, text, _CURSOR, "a cursor"), until=None, place=None)


def decode_page_token(binding: TokenBinding, text: str) -> Position:
    """Return the position of a page token."""
    return _decode(binding, text, _PAGE, "a page token")


def _encode(binding: TokenBinding, position: Position) -> str:
    place = list(position.place) if position.place else None
    facts = [
        binding.graph,
        binding.branch,
        binding.incarnation,
        binding.filter,
        position.after,
        position.until,
        place,
    ]
    return urlsafe_b64encode(json.dumps(facts, separators=(",", ":")).encode()).decode().rstrip("=")


def _decode(binding: TokenBinding, text: str, prefix: str, what: str) -> Position:
    if not text.startswith(prefix):
        raise ChangeCursorRejected(f"it is not {what}")
    body = text.removeprefix(prefix)
    try:
        facts = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        graph, branch, incarnation, filter_, after, until, place = facts
        found = Position(
            _require_text(after), _require_text(until), None if place is None else _parse_place(place)
        )
        binding.require(TokenBinding(str(graph), str(branch), str(incarnation), str(filter_)))
    except (ValueError, TypeError, RecursionError) as error:
        raise ChangeCursorRejected(f"it is not {what}") from error
    return found


def _require_text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(value)
    return value


def _parse_place(value: Any) -> ChangePlace:
    key, entity = value
    return str(key), str(entity)


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


BEGINNING, NOW, AFTER = "beginning", "now", "after:"


@dataclass(frozen=True, slots=True)
class CommitChanges:
    """A commit and what it changed against its first parent."""

    commit: Commit
    changes: Diff
    cursor: str
    """Save it when the changes are processed: a feed resumes after this commit with it."""

    def stat(self) -> Mapping[str, ChangeCounts]:
        """How many entities of each type it changed, by `node:Name` and `edge:Name`."""
        return self.changes.stat()

    def to_json(self) -> dict[str, Any]:
        """The commit and all its changes as scripts read them."""
        return {
            "cause": describe_cause(self.commit),
            "changes": [change.to_json() for change in self.changes],
        }


def describe_cause(commit: Commit) -> dict[str, Any]:
    """Return the facts about a commit that accompany its changes, as JSON."""
    optional = {
        "parent_commit_id": commit.parent,
        "merged_parent_commit_id": commit.merged_parent,
        "actor_id": commit.actor,
        "message": commit.message,
        "operation": commit.operation,
    }
    return {
        "graph_commit_id": commit.id,
        **{name: value for name, value in optional.items() if value is not None},
        "authored_branch": commit.branch,
        "authored_at": commit.created_at,
        "graph_manifest_version": commit.version,
    }


class BranchHistory:
    """The commits of a branch, from the first to the newest when it was read; no table is opened."""

    def __init__(self, graph: OpenGraph, branch: str, wanted: ChangeFilter) -> None:
        loaded = graph.load(branch)
        self.branch = branch
        self.head = loaded.state.head
        self._incarnation = loaded.identity
        self._graph = graph
        self._wanted = wanted
        self._commits = loaded.state.commits
        first = next((found for found in self._commits.values() if found.parent is None), None)
        self.binding = TokenBinding.of(first.id if first else "", branch, loaded.identity, wanted)
        self._last_snapshot: tuple[str, Snapshot] | None = None
        self._schema: Catalog | None = None
        failpoints.reach(failpoints.CHANGE_FEED_POST_CAPTURE)

    def position(self, since: str | None) -> Position:
        """Where to start: the beginning, now, after a commit, or after a cursor."""
        if since is None or since == BEGINNING:
            return Position(self._first)
        if since == NOW:
            return Position(self.head.id if self.head else None)
        if since.startswith(AFTER):
            return Position(self._graph.resolve_commit_id(since.removeprefix(AFTER)))
        return decode_cursor(self.binding, since)

    @property
    def _first(self) -> str | None:
        """The commit that created the empty graph."""
        chain = list(walk_first_parents(self._commits, self.head.id if self.head else None))
        return chain[-1].id if chain else None

    def between(self, after: str | None, until: str | None) -> list[Commit]:
        """The commits after one, up to another, oldest first."""
        found: list[Commit] = []
        for commit in walk_first_parents(self._commits, until):
            if commit.id == after:
                return found[::-1]
            found.append(commit)
        if after is None:
            return found[::-1]
        raise ChangeCursorRejected(f"branch '{self.branch}' has no commit '{after}' in its history")

    def changes(self, commit: Commit, since: str | None = None, *, feed: bool = True) -> Diff:
        """What a commit changed against its first parent."""
        parent = self._commits.get(commit.parent) if commit.parent is not None else None
        if parent is None:
            raise ChangeDiffRefused(
                f"commit '{commit.id}' has no parent to compare it with",
                reason="parentless_commit",
                commit_id=commit.id,
            )
        if commit.id in self._schema_changes:
            raise ChangeDiffRefused(
                f"commit '{commit.id}' changed the schema, so its changes cannot be listed by entity; "
                f"go on with 'after:{commit.id}', and compare it with its parent by a diff",
                reason="schema_boundary",
                commit_id=commit.id,
            )

        def gap(error: HistoricalVersionReclaimed) -> OmnigraphError:
            return ChangeFeedGap(since, commit.id) if feed else error

        try:
            before, after = self._snapshot(parent), self._snapshot(commit)
        except HistoricalVersionReclaimed as error:
            raise gap(error) from error
        self._last_snapshot = (commit.id, after)
        failpoints.reach(failpoints.CHANGE_FEED_PRE_TABLE_OPEN)
        return Diff(
            self._graph,
            before,
            after,
            self._wanted,
            catalogs=lambda _: self._catalog(after),
            explain_reclaimed=gap,
        )

    def _snapshot(self, commit: Commit) -> Snapshot:
        """Return the snapshot of a commit; that of the previous commit is cached."""
        if self._last_snapshot is not None and self._last_snapshot[0] == commit.id:
            return self._last_snapshot[1]
        reclaimed = HistoricalVersionReclaimed(self._graph.root.layout.manifest.name, commit.version)
        try:
            found = self._graph.snapshot(AtVersion(self.branch, commit.version))
        except VersionNotFound as missing:
            raise reclaimed from missing  # a new branch of the same name has fewer versions
        if found.incarnation != self._incarnation:
            raise reclaimed
        return found

    def _catalog(self, at: Snapshot) -> Catalog:
        """The schema of a commit; a feed stops where it changes, so it is looked up once."""
        if self._schema is None:
            self._schema = self._graph.catalog_at(at)
        return self._schema

    @cached_property
    def _schema_changes(self) -> frozenset[str]:
        """The commits that accepted a schema: one list."""
        places = self._graph.root.objects.list_dir(self._graph.root.layout.past_schemas)
        return frozenset(at.name.removesuffix(".pg") for at in places)


class ChangeFeed(Iterator[CommitChanges]):
    """The commits of a branch that changed something, oldest first, up to the newest when it was made.

    `cursor` points after the last commit returned, and after commits without changes that were skipped.
    """

    def __init__(self, history: BranchHistory, since: str | None, limit: int | None) -> None:
        self._history = history
        self._since = since
        self._left = limit
        start = history.position(since)
        self._after = start.after
        ahead = history.between(start.after, history.head.id if history.head else None)
        self._ahead: Sequence[Commit] = ahead

    @property
    def cursor(self) -> str:
        """Where to go on the next time."""
        return encode_cursor(self._history.binding, self._after)

    @property
    def caught_up(self) -> bool:
        """Whether the newest commit was reached."""
        return not self._ahead

    def __next__(self) -> CommitChanges:
        while self._ahead and self._left != 0:
            commit = self._ahead[0]
            found = self._history.changes(commit, self._since)
            is_something = bool(found)
            self._after, self._ahead = commit.id, self._ahead[1:]
            if is_something:
                self._left = None if self._left is None else self._left - 1
                return CommitChanges(commit, found, self.cursor)
        raise StopIteration
