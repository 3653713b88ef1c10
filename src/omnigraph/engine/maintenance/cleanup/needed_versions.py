"""Which versions of tables the branches of a graph still need.

A branch needs what it publishes now, what the commits publish that the policy keeps, and its merge bases. All
of that is in its manifest: each row has the version of the manifest that added it, so the tables of every
commit are known without opening old versions of the manifest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.ancestry import Ancestry
from omnigraph.engine.graph.coordinator import LoadedBranch
from omnigraph.engine.graph.layout import LOCK_BRANCH
from omnigraph.engine.graph.manifest import CREATED_AT, MAIN, TOMBSTONE, VERSION, ManifestState
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.tags import kept_versions, list_kept_commits, list_tags, survey_tags
from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
from omnigraph.errors import BranchNotFound, OmnigraphError, Unavailable
from omnigraph.storage.references import Fork

ENDLESS = 1 << 63

_LOOKS = 8


@dataclass(frozen=True, slots=True)
class OwnedTable:
    """One owner's versions of a table."""

    path: str
    owner: str | None
    """The branch whose fork it is; None for main."""

    @property
    def branch(self) -> str:
        """The branch whose lock protects it."""
        return MAIN if self.owner is None else self.owner


@dataclass(frozen=True, slots=True)
class NeededVersions:
    """The versions to keep of every table."""

    versions: Mapping[OwnedTable, frozenset[int]]
    recent: Mapping[OwnedTable, int]
    """From this version on all are kept, also those that were never published.

    A write that was prepared some time ago reads every version of its tables since then.
    """

    def of(self, place: OwnedTable, shown: int) -> tuple[frozenset[int], int]:
        """Return the versions to keep, and the one from which all are kept; `shown` is the published one."""
        return self.versions.get(place, frozenset()), min(self.recent.get(place, shown), shown)

    def __or__(self, other: NeededVersions) -> NeededVersions:
        """Return what either of two reads needs."""
        versions = dict(self.versions)
        for place, found in other.versions.items():
            versions[place] = found | versions.get(place, frozenset())
        recent = dict(self.recent)
        for place, version in other.recent.items():
            recent[place] = min(version, recent.get(place, version))
        return NeededVersions(versions, recent)


Span = tuple[int, int]
"""Versions of a manifest: from one up to, and without, another."""

_ManifestRow = tuple[int, int, str | None]
"""The version of the manifest that first had a row, the version of a table in it, and the owner of that."""


def read_branches(graph: OpenGraph) -> dict[str, LoadedBranch]:
    """Read every branch as it is now; what may be removed depends on all of them.

    The same branches must exist before and after. Otherwise a branch that was read already might have adopted
    versions of another one, which is deleted before it is read.
    """
    for _ in range(_LOOKS):
        live = _list_incarnations(graph)
        found = {
            branch: loaded for branch in (MAIN, *sorted(live)) if (loaded := _read_branch(graph, branch))
        }
        if _list_incarnations(graph) == live:
            return found
    raise Unavailable(
        "nothing is cleaned up while branches are constantly created and deleted", remedy="try again"
    )


def _list_incarnations(graph: OpenGraph) -> dict[str, Fork]:
    """Return all branches but main, with their incarnations; the lock of a schema change is not a branch."""
    forks = graph.root.forks.list(graph.root.layout.manifest)
    return {name: fork for name, fork in forks.items() if name != LOCK_BRANCH}


def _read_branch(graph: OpenGraph, branch: str) -> LoadedBranch | None:
    try:
        failpoints.reach(failpoints.CLEANUP_RESOLVE_BRANCH_SNAPSHOT)
        return graph.load(branch)
    except BranchNotFound:
        return None  # deleted since it was listed
    except OmnigraphError as error:
        raise Unavailable(
            f"nothing is cleaned up while branch '{branch}' cannot be read: {error.message}",
            remedy="make the branch readable or delete it, then try again",
        ) from error


def find_needed_versions(
    branches: Mapping[str, LoadedBranch],
    policy: CleanupPolicy,
    now: int,
    bases: frozenset[str],
    kept: Iterable[tuple[str, int]] = (),
) -> NeededVersions:
    """Return the versions to keep, by table.

    `bases` are the possible merge bases, and `kept` the paths and versions of main's tables that the saved
    content of deleted branches depends on.
    """
    recently = CleanupPolicy(1, None, policy.minimum_age)
    versions: defaultdict[OwnedTable, set[int]] = defaultdict(set)
    for path, version in kept:
        versions[OwnedTable(path, None)].add(version)
    recent: dict[OwnedTable, int] = {}
    for branch, loaded in branches.items():
        rows = list(read_published(loaded))
        for place, version in _versions_in_spans(rows, _kept_spans(loaded, policy, bases, now)):
            versions[place].add(version)
        for place, version in _versions_in_spans(rows, _kept_spans(loaded, recently, frozenset(), now)):
            # Only the owner of a table; other branches may publish a very old version.
            if place.branch == branch:
                recent[place] = min(version, recent.get(place, version))
    return NeededVersions({place: frozenset(found) for place, found in versions.items()}, recent)


# --- which versions of a manifest ----------------------------------------------------------------


def _kept_spans(loaded: LoadedBranch, policy: CleanupPolicy, bases: frozenset[str], now: int) -> list[Span]:
    """Return the spans of manifest versions that stay readable; upkeep adds versions between commits."""
    chain = sorted(loaded.state.commits.values(), key=lambda commit: commit.order)
    if not chain:
        return [(loaded.state.version, ENDLESS)]
    kept = policy.kept(chain, now)
    ends = [*(commit.version for commit in chain[1:]), ENDLESS]
    spans = []
    for commit, stays, end in zip(chain, kept, ends, strict=True):
        if stays:
            spans.append((commit.version, max(end, commit.version + 1)))
        elif commit.id in bases:
            spans.append((commit.version, commit.version + 1))
    return spans


# --- which versions of tables --------------------------------------------------------------------


def _versions_in_spans(
    rows: Iterable[PublishedVersion], spans: Sequence[Span]
) -> Iterator[tuple[OwnedTable, int]]:
    """The versions of tables that a manifest shows in some spans of its own versions."""
    ends = [end for _, end in spans]
    for row in rows:
        # The first span that ends after the row was added counts if it begins before the row was replaced.
        at = bisect_left(ends, row.came + 1)
        if at < len(spans) and spans[at][0] < row.gone:
            yield row.place, row.version


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """A published version of a table, and the versions of the manifest that show it."""

    place: OwnedTable
    version: int
    came: int
    gone: int


def read_published(loaded: LoadedBranch) -> Iterator[PublishedVersion]:
    published, dropped = _scan_manifest(loaded, VERSION), _scan_manifest(loaded, TOMBSTONE)
    for key, rows in published.items():
        path = loaded.state.locations.get(key)
        if path is None:
            continue
        if not loaded.table.has_stable_row_ids:
            # A manifest of an old release does not record when a row was added: then every row is needed.
            yield from (
                PublishedVersion(OwnedTable(path, owner), version, 0, ENDLESS) for _, version, owner in rows
            )
            continue
        drop, until, _ = max(dropped.get(key, []), default=(ENDLESS, -1, None))
        visible = _keep_visible(rows)
        ends = [*(came for came, _, _ in visible[1:]), ENDLESS]
        for (came, version, owner), end in zip(visible, ends, strict=True):
            yield PublishedVersion(
                OwnedTable(path, owner), version, came, min(end, drop) if version <= until else end
            )


def _keep_visible(rows: Iterable[_ManifestRow]) -> list[_ManifestRow]:
    """Return rows in the order they were added, without those below an earlier one: never visible."""
    found: list[_ManifestRow] = []
    for row in sorted(rows, key=lambda row: row[:2]):
        if not found or row[1] >= found[-1][1]:
            found.append(row)
    return found


def _scan_manifest(loaded: LoadedBranch, kind: str) -> dict[str, list[_ManifestRow]]:
    """The rows of a kind, by table."""
    stable = loaded.table.has_stable_row_ids
    columns = ["table_key", "table_version", "table_branch", *([CREATED_AT] if stable else [])]
    rows = loaded.table.scan(columns, where=f"object_type = '{kind}'", ordered=False)
    keys, versions, owners = (rows.column(name).to_pylist() for name in columns[:3])
    came = rows.column(CREATED_AT).to_pylist() if stable else [0] * rows.num_rows
    found: defaultdict[str, list[_ManifestRow]] = defaultdict(list)
    for key, *row in zip(keys, came, versions, owners, strict=True):
        found[key].append((row[0], row[1], row[2]))
    return found


def find_merge_bases(states: Mapping[str, ManifestState], tips: Iterable[str] = ()) -> frozenset[str]:
    """Return the ids of commits that a merge of any two of these branches would read.

    `tips` are further commits from which a branch may soon descend.
    """
    ancestry = Ancestry(states)
    heads = {state.head.id for state in states.values() if state.head is not None}
    found = heads | {tip for tip in tips if tip in ancestry.commits}
    return frozenset(ancestry.bases_of_bases(*([head] for head in sorted(found))))


def read_tagged(
    graph: OpenGraph, *, skip_broken: bool = False
) -> tuple[frozenset[str], list[tuple[str, int]]]:
    """Return the tagged commits, and the versions of main's tables that those of deleted branches need.

    A tag that cannot be read is skipped only by callers that remove nothing.
    """
    tags = survey_tags(graph.root).tags if skip_broken else list_tags(graph.root)
    tagged = frozenset(tag.commit_id for tag in tags)
    kept = list_kept_commits(graph.root) & tagged if tagged else frozenset[str]()
    return tagged, list(kept_versions(graph.root, kept, skip_broken=skip_broken))


def tips_between(earlier: Mapping[str, LoadedBranch], now: Mapping[str, LoadedBranch]) -> Iterator[str]:
    """Yield the commits of an earlier read from which branches descend now.

    Branches are read one after another while merges go on. A merge is invisible in a single read when its
    target was read before it, and its source after the source had new commits.
    """
    for branch, loaded in now.items():
        before = earlier.get(branch)
        if before is None or before.identity != loaded.identity:
            continue
        if before.state.head is not None:
            yield before.state.head.id
        new = loaded.state.commits.keys() - before.state.commits.keys()
        yield from (parent for one in new if (parent := loaded.state.commits[one].merged_parent))
