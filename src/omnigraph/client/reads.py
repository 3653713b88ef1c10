"""Calls that read: queries, snapshots, branches, commits, the schema, Blobs and exports."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, TypeVar

import pyarrow as pa

from omnigraph.client import decode
from omnigraph.client.calls import (
    ARROW,
    JSON,
    Call,
    Reply,
    decode_json,
    json_body,
    json_call,
    path_of,
    query_of,
    read_text,
)
from omnigraph.client.results import decode_arrow, decode_table, result_from_json
from omnigraph.client.served_options import refuse_engine, require_known
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes import DEFAULT_ENTRIES
from omnigraph.engine.changes.entity_history import EntityHistory
from omnigraph.engine.changes.log import LogEntry
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.tags import Tag
from omnigraph.errors import BadRequest, InvalidValue
from omnigraph.lang.query.statements import plain_value
from omnigraph.query.request import Explanation
from omnigraph.query.result import Result
from omnigraph.snapshot import QueryEngine

Answer = TypeVar("Answer")
QueryText = str | os.PathLike[str]
Params = Mapping[str, object] | None


class MomentOptions(TypedDict, total=False):
    """Which moment of a graph is read: those of `Graph.at`."""

    branch: str | None
    commit: str | None
    version: int | None
    time: datetime | str | None


class QueryOptions(MomentOptions, total=False):
    """The options of a query that a server runs: those of `Graph.query`."""

    name: str | None
    max_rows: int | None
    timeout: float | None
    engine: QueryEngine


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """A snapshot as the server describes it."""

    branch: str
    version: int
    commit: Commit | None
    tables: Mapping[str, Any]
    format_version: int

    @property
    def id(self) -> str:
        """The id of its commit, or a name made of branch and version."""
        return f"manifest:{self.branch}:v{self.version}" if self.commit is None else self.commit.id


def run_query(query: QueryText, params: Params, options: QueryOptions) -> Call[Result]:
    """Return a query whose result is in memory."""
    return _query_call("query", query, params, options, decode_arrow, accept=ARROW)


def stream_query(query: QueryText, params: Params, options: QueryOptions) -> Call[None]:
    """Return a query whose batches are read as they arrive."""
    return _query_call("query", query, params, options, lambda _: None, accept=ARROW)


def read_rows(
    type_name: str, columns: Sequence[str] | None, limit: int | None, branch: str, version: int
) -> Call[pa.Table]:
    """Return the rows of a type at a version of a branch."""
    if limit is not None and limit < 0:
        raise InvalidValue(f"limit must not be negative, got {limit}")
    wanted = None if columns is None else list(columns)
    body = json_body(type=type_name, columns=wanted, limit=limit, branch=branch, version=version)
    headers = {"Content-Type": JSON, "Accept": ARROW}
    return Call("POST", "rows", decode_table, headers=headers, body=body)


def explain_query(query: QueryText, params: Params, options: QueryOptions) -> Call[Explanation]:
    """Return a query that is explained."""
    return _query_call("explain", query, params, options, decode_json(decode.explanation), accept=JSON)


def _query_call(
    path: str,
    query: QueryText,
    params: Params,
    options: QueryOptions,
    decode_reply: Callable[[Reply], Answer],
    *,
    accept: str,
) -> Call[Answer]:
    require_known(QueryOptions, options)
    refuse_engine(options.get("engine", "local"))
    text, source_name = read_text(query)
    body = json_body(
        query=text,
        params=plain_params(params),
        name=options.get("name"),
        max_rows=options.get("max_rows"),
        timeout=options.get("timeout"),
        **moment_members(options),
    )
    headers = {"Content-Type": JSON, "Accept": accept}
    return Call("POST", path, decode_reply, headers=headers, body=body, source_name=source_name)


def plain_params(params: Params) -> dict[str, object] | None:
    """Return parameters as JSON has them."""
    if params is None:
        return None
    return {name: _name_numbers(plain_value(value)) for name, value in params.items()}


def _name_numbers(value: object) -> object:
    """Return numbers that JSON does not have by their names; otherwise they would become null."""
    if isinstance(value, list):
        return [_name_numbers(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def moment_members(moment: MomentOptions) -> dict[str, Any]:
    """Return the members of a request that name a moment."""
    branch, time = moment.get("branch"), moment.get("time")
    return {
        "branch": None if branch is None else parse_branch_name(branch),
        "commit": moment.get("commit"),
        "version": moment.get("version"),
        "time": plain_value(time) if time is not None else None,
    }


def invoke_read(name: str, params: Params, branch: str | None, snapshot: str | None) -> Call[Result]:
    """Return a stored query that reads."""
    body = json_body(params=plain_params(params), branch=branch, snapshot=snapshot, expect_mutation=False)
    return json_call(path_of("queries", name), result_from_json, body, is_safe=True)


def list_stored_queries() -> Call[list[dict[str, Any]]]:
    """Return the stored queries."""
    return Call("GET", "queries", decode_json(lambda found: list(found["queries"])))


def take_snapshot(moment: MomentOptions) -> Call[SnapshotFacts]:
    """Return the snapshot of a moment."""
    require_known(MomentOptions, moment)
    return Call("GET", "snapshot", decode_json(_snapshot), query_of(**moment_members(moment)))


def take_past_snapshot(moment: MomentOptions) -> Call[SnapshotFacts]:
    """Return the snapshot of a moment that a commit, a version or a time names."""
    if all(moment.get(name) is None for name in ("commit", "version", "time")):
        raise BadRequest("name exactly one of commit, version and time, not none of them")
    return take_snapshot(moment)


def _snapshot(found: Mapping[str, Any]) -> SnapshotFacts:
    return SnapshotFacts(
        branch=found["graph_branch"],
        version=found["graph_manifest_version"],
        commit=decode.optional_commit(found["commit"]),
        tables=decode.table_infos(found),
        format_version=found["internal_schema_version"],
    )


def list_graphs() -> Call[list[dict[str, Any]]]:
    """Return the graphs of a server; the address is that of the server."""
    return Call("GET", "graphs", decode_json(lambda found: list(found["graphs"])))


def list_tags() -> Call[list[Tag]]:
    """Return the tags, by name."""
    return Call("GET", "tags", decode_json(lambda found: [decode.tag(one) for one in found["tags"]]))


def list_branches() -> Call[list[str]]:
    """Return the branches, main first."""
    return Call("GET", "branches", decode_json(lambda found: _main_first(found["branches"])))


def _main_first(names: Sequence[str]) -> list[str]:
    return sorted(names, key=lambda name: (name != MAIN, name))


def list_commits(branch: str) -> Call[list[Commit]]:
    """Return the history of a branch."""
    return Call("GET", "commits", decode_json(decode.commits), query_of(branch=parse_branch_name(branch)))


class LogOptions(TypedDict, total=False):
    """The options of a log: those of `Graph.log`."""

    all_branches: bool
    actor: str | None
    limit: int | None
    stat: bool


def read_log(branch: str, options: LogOptions) -> Call[list[LogEntry]]:
    """Return the newest commits, with how much each changed."""
    require_known(LogOptions, options)
    limit = options.get("limit", DEFAULT_ENTRIES)
    if limit is not None and limit < 0:
        raise InvalidValue(f"limit must not be negative, got {limit}")
    query = query_of(
        branch=parse_branch_name(branch),
        all_branches=_flag(options.get("all_branches", False)),
        actor=options.get("actor"),
        limit="all" if limit is None else str(limit),
        stat=_flag(options.get("stat", True)),
    )
    return Call("GET", "log", decode_json(decode.log_entries), query)


def read_history(type_name: str, entity_id: str, branch: str, limit: int | None) -> Call[EntityHistory]:
    """Return the commits that changed one entity."""
    if limit is not None and limit < 0:
        raise InvalidValue(f"limit must not be negative, got {limit}")
    query = query_of(
        type=type_name,
        id=entity_id,
        branch=parse_branch_name(branch),
        limit="all" if limit is None else str(limit),
    )
    return Call("GET", "history", decode_json(decode.entity_history), query)


def _flag(value: bool) -> str:
    return "true" if value else "false"


def get_commit(commit_id: str) -> Call[Commit]:
    """Return one commit."""
    return Call("GET", path_of("commits", commit_id), decode_json(decode.commit))


def get_schema() -> Call[str]:
    """Return the text of the schema."""
    return Call("GET", "schema", decode_json(lambda found: str(found["schema_source"])))


def export_lines(types: Sequence[str] | None, moment: MomentOptions) -> Call[None]:
    """Return an export, whose lines are read as they arrive."""
    body = json_body(type_names=None if types is None else list(types), **moment_members(moment))
    return Call("POST", "export", lambda _: None, headers={"Content-Type": JSON}, body=body)


# --- Blobs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlobSelector:
    """The entity and property of a Blob, at a version of a branch."""

    entity: Literal["node", "edge"]
    type_name: str
    id: str
    property_name: str
    branch: str
    version: int

    @property
    def query(self) -> list[tuple[str, str]]:
        """The parameters of a request."""
        return query_of(
            entity=self.entity,
            type=self.type_name,
            id=self.id,
            property=self.property_name,
            branch=self.branch,
            version=self.version,
        )


def describe_blob(selector: BlobSelector) -> Call[Mapping[str, str]]:
    """Return the headers of a Blob."""
    return Call("HEAD", "blob", lambda reply: reply.headers, selector.query)


def explain_blob(selector: BlobSelector) -> Call[Mapping[str, str]]:
    """Return the same as a request whose failure has a body: one byte of the Blob."""
    return Call("GET", "blob", lambda reply: reply.headers, selector.query, {"Range": "bytes=0-0"})


def read_blob(selector: BlobSelector, begin: int, end: int) -> Call[None]:
    """Return a range of the bytes of a Blob, which are read as they arrive."""
    if end <= begin:
        raise BadRequest(f"a range of bytes does not end at {end} when it begins at {begin}")
    return Call("GET", "blob", lambda _: None, selector.query, {"Range": f"bytes={begin}-{end - 1}"})
