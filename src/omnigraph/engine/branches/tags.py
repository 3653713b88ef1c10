"""Create, move and delete tags.

A tag of a commit is written while the locks of all branches are held whose tables the commit shows. Cleanup
holds the lock of a branch while it removes versions of its tables, and looks at the tags again then. So
either cleanup finds the tag, or the tag finds that the versions are gone.
"""

from __future__ import annotations

from functools import partial

from omnigraph.engine.branches.kept_commits import remove_kept_commit
from omnigraph.engine.graph.lineage import Commit, require_message
from omnigraph.engine.graph.manifest import MAIN, TableEntry
from omnigraph.engine.graph.open_graph import AtCommit, OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.tags import (
    Tag,
    encode_tag,
    parse_tag_name,
    read_kept_commit,
    read_tag,
    survey_tags,
    tag_location,
)
from omnigraph.errors import (
    BadRequest,
    CorruptGraph,
    HistoricalVersionReclaimed,
    InvalidName,
    StorageFailure,
    TagExists,
    TagNotFound,
)
from omnigraph.storage.concurrency import Together
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.tables import Tables


def create_tag(
    graph: OpenGraph,
    name: str,
    at: Snapshot,
    *,
    actor: str | None = None,
    message: str | None = None,
    force: bool = False,
) -> Tag:
    """Name the commit of a snapshot; `force` moves a tag that exists, which is refused otherwise."""
    name = parse_tag_name(name)
    commit = _require_commit(at)
    graph.permissions.require("branch_create", branch=commit.branch, target=name, actor=actor)
    if message is not None:
        require_message(message)
    _refuse_read_only(graph)
    with graph.root.locks.hold({MAIN, *_list_owners(graph, at)}) as held:
        _refuse_branch_of_that_name(graph, name)
        before = read_tag(graph.root, name)
        if before is not None and not force:
            raise TagExists(name, before.commit_id)
        require_readable(graph, graph.snapshot(AtCommit(commit.id)))
        now = graph.root.clock()
        created_at = now if before is None else max(now, before.created_at + 1)
        tag = Tag(name, commit.id, created_at, graph.permissions.actor_of(actor), message)
        held.require()
        _write(graph, tag, before)
        if before is not None and before.commit_id != tag.commit_id:
            _forget_commit(graph, held, before.commit_id)
    return tag


def delete_tag(graph: OpenGraph, name: str, *, actor: str | None = None) -> None:
    """Delete a tag; what only it kept can be cleaned up then."""
    name = parse_tag_name(name)
    graph.permissions.require("branch_delete", target=name, actor=actor)
    _refuse_read_only(graph)
    with graph.root.locks.hold([MAIN]) as held:
        try:
            found = read_tag(graph.root, name)
            if found is None:
                raise TagNotFound(name)
        except CorruptGraph:
            found = None  # cleanup removes what only this tag kept
        held.require()
        graph.root.objects.delete(tag_location(graph.root, name), held)
        if found is not None:
            _forget_commit(graph, held, found.commit_id)


def get_tag(graph: OpenGraph, name: str) -> Tag:
    """Return a tag; fails with `TagNotFound` when there is none of that name."""
    found = read_tag(graph.root, parse_tag_name(name))
    if found is None:
        raise TagNotFound(name)
    return found


def refuse_tag_of_that_name(graph: OpenGraph, branch: str) -> None:
    """Fail when a new branch would have the name of a tag: a moment must have one meaning."""
    found = read_tag(graph.root, branch)
    if found is not None:
        raise TagExists(branch, found.commit_id)


def _require_commit(at: Snapshot) -> Commit:
    if at.commit is None:
        raise BadRequest(f"'{at.id}' has no commit to tag", remedy="name a commit")
    return at.commit


def _list_owners(graph: OpenGraph, at: Snapshot) -> set[str]:
    """The branches that cleanup or a deletion would lock before it removes what a snapshot shows."""
    if at.commit is not None and read_kept_commit(graph.root, at.commit.id) is not None:
        return {MAIN}
    return {at.branch, *(entry.owner or MAIN for entry in at.entries.values())}


def _refuse_branch_of_that_name(graph: OpenGraph, name: str) -> None:
    if graph.root.forks.find(graph.root.layout.manifest, name) is not None:
        raise InvalidName(name, f"'{name}' is the name of a branch", remedy="choose another name")


def require_readable(graph: OpenGraph, at: Snapshot) -> None:
    """Raise `HistoricalVersionReclaimed` when a table that a snapshot shows was cleaned up."""
    access, layout = graph.root.tables.access, graph.root.layout
    # Not the handles at hand: they do not notice that another process removed their version.
    tables = Tables(access.observe, sync=access.sync, checksums=access.checksums)

    def look(entry: TableEntry) -> None:
        try:
            tables.open(layout.table(entry.path), entry.version, branch=entry.owner)
        except StorageFailure as failure:
            if failure.kind not in (TableFailureKind.NOT_FOUND, TableFailureKind.RECLAIMED):
                raise
            raise HistoricalVersionReclaimed(entry.key, entry.version) from failure

    with Together(layout.root) as calls:
        for entry in at.entries.values():
            calls.add(partial(look, entry))


def _write(graph: OpenGraph, tag: Tag, before: Tag | None) -> None:
    objects, at = graph.root.objects, tag_location(graph.root, tag.name)
    if before is not None:
        objects.write_text(at, encode_tag(tag))
    elif not objects.write_text_if_absent(at, encode_tag(tag)):
        found = read_tag(graph.root, tag.name)
        raise TagExists(tag.name, found.commit_id if found else tag.commit_id)


def _forget_commit(graph: OpenGraph, held: HeldLocks, commit_id: str) -> None:
    """Remove what is kept of a commit of a deleted branch, unless another tag names or may name it."""
    others = survey_tags(graph.root)
    if not others.broken and all(tag.commit_id != commit_id for tag in others.tags):
        remove_kept_commit(graph, held, commit_id)


def _refuse_read_only(graph: OpenGraph) -> None:
    if graph.read_only:
        raise BadRequest(f"'{graph.root.uri}' is open read-only", remedy="open it for writing")
