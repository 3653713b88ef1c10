"""Loads."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from omnigraph.engine.load.request import LoadResult
from omnigraph.server.wire.base import Sparse, Wire
from omnigraph.server.wire.commits import CommitOutput

LoadModeName = Literal["overwrite", "append", "merge", "patch"]
DEFAULT_MODE: LoadModeName = "merge"


class IngestRequest(Wire, frozen=True, kw_only=True):
    """Lines of NDJSON, and where they go; a missing branch is created from `from`."""

    data: str
    branch: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    mode: LoadModeName = DEFAULT_MODE
    message: str | None = None
    dry_run: bool = False


class LoadedType(Wire, frozen=True, kw_only=True):
    """How many records of a type were loaded."""

    name: str
    entities_loaded: int


class LoadedTable(Wire, frozen=True, kw_only=True):
    """The same by table key, under its former names."""

    table_key: str
    rows_loaded: int


class GraphBatchLoadOutput(Sparse, frozen=True, kw_only=True):
    """What a load did; `ignored_members` are names that the schema does not have.

    `skipped` has the first of the violations of records that were left out, `skipped_counts` how many there
    are, by kind; both only with `skip_bad`, and where something is wrong. With `dry_run` the counts are those
    that the load would have.
    """

    branch: str
    base_branch: str | None
    branch_created: bool
    mode: str
    nodes: list[LoadedType]
    edges: list[LoadedType]
    tables: list[LoadedTable]
    total_entities: int
    actor_id: str | None
    commit: CommitOutput | None
    ignored_members: list[str] = msgspec.field(default_factory=list)
    skipped: list[dict[str, Any]] = msgspec.field(default_factory=list)
    skipped_counts: dict[str, int] = msgspec.field(default_factory=dict)
    dry_run: bool = False


class IngestOutput(GraphBatchLoadOutput, frozen=True, kw_only=True):
    """What a load did, and on which graph."""

    uri: str


class LoadTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where the rows of a load go."""

    branch: str
    from_: str | None
    mode: LoadModeName
    message: str | None = None
    skip_bad: bool = False
    retry: int = 0
    dry_run: bool = False


def load_output(
    done: LoadResult, target: LoadTarget, actor: str | None, ignored: list[str]
) -> GraphBatchLoadOutput:
    """Return the body of a load's result, without the graph."""
    counts = {"node": done.nodes, "edge": done.edges}
    tables = {f"{kind}:{name}": rows for kind, found in counts.items() for name, rows in found.items()}
    return GraphBatchLoadOutput(
        branch=target.branch,
        base_branch=target.from_,
        branch_created=done.branch_created,
        mode=target.mode,
        nodes=[LoadedType(name=name, entities_loaded=done.nodes[name]) for name in sorted(done.nodes)],
        edges=[LoadedType(name=name, entities_loaded=done.edges[name]) for name in sorted(done.edges)],
        tables=[LoadedTable(table_key=key, rows_loaded=tables[key]) for key in sorted(tables)],
        total_entities=done.total,
        actor_id=actor,
        commit=CommitOutput.of_optional(done.commit),
        ignored_members=ignored,
        skipped=[one.to_json() for one in done.skipped],
        skipped_counts=dict(sorted(done.skipped_counts.items())),
        dry_run=target.dry_run,
    )


def ingest_output(body: GraphBatchLoadOutput, uri: str) -> IngestOutput:
    """Return the same with the graph."""
    return IngestOutput(uri=uri, **{name: getattr(body, name) for name in body.__struct_fields__})
