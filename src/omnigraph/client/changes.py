"""Calls for changes: pages of a feed, pages of a commit, and differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from omnigraph.client import decode
from omnigraph.client.calls import JSON, Call, decode_json, json_body, json_call, path_of, query_of
from omnigraph.client.served_options import refuse_engine, require_known
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes import DEFAULT_CHANGES
from omnigraph.engine.changes.change import Change, ChangeCounts, parse_filter
from omnigraph.engine.changes.feed import AFTER, BEGINNING, NOW
from omnigraph.engine.changes.page import ChangePage, CommitPage, require_limit
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.tasks.runner import EngineName

Words = str | Iterable[str] | None


class ChangeFilterOptions(TypedDict, total=False):
    """Which changes are wanted: those of `Graph.changes`."""

    types: Words
    kinds: Words
    ops: Words


class DiffOptions(ChangeFilterOptions, total=False):
    """Which changes are wanted, and what finds them: those of `Graph.diff`."""

    engine: EngineName


class ChangePageOptions(ChangeFilterOptions, total=False):
    """The size of a page of changes, where it begins, and which are wanted."""

    page_token: str | None
    limit: int


@dataclass(frozen=True, slots=True)
class DiffMoment:
    """A moment that was compared."""

    branch: str
    version: int
    commit_id: str | None

    @property
    def id(self) -> str:
        """The id of its commit, or a name made of branch and version."""
        return f"manifest:{self.branch}:v{self.version}" if self.commit_id is None else self.commit_id

    @property
    def name(self) -> str:
        """The moment as a diff takes it."""
        return f"{self.branch}@v{self.version}"


@dataclass(frozen=True, slots=True)
class DiffSummary:
    """Which moments were compared, and how much differs."""

    before: DiffMoment
    after: DiffMoment
    stats: Mapping[str, ChangeCounts]


def page_of(wanted: ChangeFilterOptions, token: str | None = None) -> ChangePageOptions:
    """Return the options of a page of the usual size."""
    require_known(ChangeFilterOptions, wanted)
    return {
        "page_token": token,
        "limit": DEFAULT_CHANGES,
        "types": wanted.get("types"),
        "kinds": wanted.get("kinds"),
        "ops": wanted.get("ops"),
    }


def read_feed_page(branch: str, since: str | None, options: ChangePageOptions) -> Call[ChangePage]:
    """Return the next changes of a branch."""
    require_known(ChangePageOptions, options)
    token = options.get("page_token")
    query = [
        *query_of(
            branch=parse_branch_name(branch), **({} if token is not None and since is None else _start(since))
        ),
        *_page_query(options),
    ]
    return Call("GET", "changes", decode_json(decode.change_page), query)


def read_commit_page(commit_id: str, options: ChangePageOptions) -> Call[CommitPage]:
    """Return the next changes of a commit."""
    require_known(ChangePageOptions, options)
    path = path_of("commits", commit_id, "changes")
    return Call("GET", path, decode_json(decode.commit_page), _page_query(options))


def capture_baseline(branch: str, options: ChangeFilterOptions) -> Call[None]:
    """Return the entities of a branch and a cursor, which are read as they arrive."""
    require_known(ChangeFilterOptions, options)
    wanted = parse_filter(options.get("kinds"), options.get("types"), options.get("ops")).to_json()
    body = json_body(
        branch=parse_branch_name(branch), kind=wanted["kinds"], type=wanted["types"], op=wanted["ops"]
    )
    return Call("POST", "changes/baseline", lambda _: None, headers={"Content-Type": JSON}, body=body)


def compare(a: str, b: str, options: DiffOptions) -> Call[DiffSummary]:
    """Return what differs between two moments, counted."""
    require_known(DiffOptions, options)
    refuse_engine(options.get("engine", "auto"))
    return json_call("diff", _summary, _diff_body(a, b, options, stat=True), is_safe=True)


def list_changes(before: DiffMoment, after: DiffMoment, options: ChangeFilterOptions) -> Call[list[Change]]:
    """Return all changes between two moments."""
    body = _diff_body(before.name, after.name, options, stat=False)
    return json_call(
        "diff", lambda found: [decode.change(one) for one in found["changes"]], body, is_safe=True
    )


def _start(since: str | None) -> dict[str, str]:
    named = BEGINNING if since is None else since
    is_place = named in (BEGINNING, NOW) or named.startswith(AFTER)
    return {"start" if is_place else "cursor": named}


def _page_query(options: ChangePageOptions) -> list[tuple[str, str]]:
    limit = options.get("limit", DEFAULT_CHANGES)
    require_limit(limit)
    wanted = parse_filter(options.get("kinds"), options.get("types"), options.get("ops"))
    filters = [
        *(("kind", kind) for kind in sorted(wanted.kinds)),
        *(("type", name) for name in sorted(wanted.types)),
        *(("op", op.value) for op in sorted(wanted.ops)),
    ]
    return [*query_of(page_token=options.get("page_token"), limit=limit), *filters]


def _diff_body(a: str, b: str, options: ChangeFilterOptions, *, stat: bool) -> bytes:
    wanted = parse_filter(options.get("kinds"), options.get("types"), options.get("ops"))
    return json_body(from_=a, to=b, stat=stat, **wanted.to_json())


def _summary(found: Mapping[str, Any]) -> DiffSummary:
    return DiffSummary(_moment(found["from"]), _moment(found["to"]), decode.change_counts(found["stats"]))


def _moment(found: Mapping[str, Any]) -> DiffMoment:
    return DiffMoment(found["graph_branch"], found["graph_manifest_version"], found["graph_commit_id"])
