"""JSON of answers as the values that a local graph returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args

from omnigraph.engine.changes.change import Change, ChangeCounts, ChangeOperation, EntityImage
from omnigraph.engine.changes.entity_history import EntityChange, EntityHistory
from omnigraph.engine.changes.log import LogEntry
from omnigraph.engine.changes.page import ChangeBlock, ChangePage, CommitPage
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.tags import Tag
from omnigraph.engine.load.request import LoadResult
from omnigraph.engine.merge.choices import GranularityByType, MergeChoices, MergeGranularity
from omnigraph.engine.merge.conflict import ConflictKind, DroppedValues, MergeConflict
from omnigraph.engine.merge.merge_inputs import MergeOutcome
from omnigraph.engine.merge.resolutions import read_resolutions
from omnigraph.engine.merge.result import MergePreview, MergeResult
from omnigraph.engine.merge.table_merge import BranchChanges
from omnigraph.engine.rows.violations import Violation
from omnigraph.engine.schema_apply.apply import SchemaResult
from omnigraph.engine.write.mutate import MutationResult, WriteCounts
from omnigraph.lang.schema.catalog import Annotation
from omnigraph.lang.schema.migration_steps import MigrationStep
from omnigraph.lang.types import SCALARS, ValueType, vector_type
from omnigraph.query.request import Explanation, QueryStep
from omnigraph.snapshot import TableInfo

Members = Mapping[str, Any]


def commit(found: Members) -> Commit:
    """Return a commit."""
    return Commit(
        id=found["graph_commit_id"],
        branch=MAIN if found["graph_branch"] is None else found["graph_branch"],
        version=found["graph_manifest_version"],
        created_at=found["created_at"],
        parent=found["parent_commit_id"],
        merged_parent=found["merged_parent_commit_id"],
        actor=found["actor_id"],
        message=found.get("message"),
        operation=found.get("operation"),
    )


def log_entries(found: Members) -> list[LogEntry]:
    """Return the commits of a log."""
    return [_log_entry(one) for one in found["commits"]]


def _log_entry(found: Members) -> LogEntry:
    counts = found["changes"]
    changes = None if counts is None else {key: ChangeCounts(**one) for key, one in counts.items()}
    tags = tuple(found.get("tags", ()))
    return LogEntry(commit(found["commit"]), changes, tuple(found["branches"]), tags)


def tag(found: Members) -> Tag:
    """Return a tag."""
    return Tag(
        found["name"], found["graph_commit_id"], found["created_at"], found["actor_id"], found["message"]
    )


def optional_commit(found: Members | None) -> Commit | None:
    """Return a commit, where there is one."""
    return None if found is None else commit(found)


def commits(found: Members) -> list[Commit]:
    """Return the commits of a list."""
    return [commit(one) for one in found["commits"]]


def mutation(found: Members) -> MutationResult:
    """Return what a mutation did."""
    return MutationResult(
        affected_nodes=found["affected_nodes"],
        affected_edges=found["affected_edges"],
        commit=optional_commit(found["commit"]),
        query=found["query_name"],
        tables={
            one["table_key"]: WriteCounts(one["inserted"], one["updated"], one["deleted"])
            for one in found["tables"]
        },
    )


def load(found: Members) -> LoadResult:
    """Return what a load did."""
    return LoadResult(
        nodes={one["name"]: one["entities_loaded"] for one in found["nodes"]},
        edges={one["name"]: one["entities_loaded"] for one in found["edges"]},
        commit=optional_commit(found["commit"]),
        branch_created=found["branch_created"],
        skipped=tuple(violation(one) for one in found.get("skipped", ())),
        skipped_counts=found.get("skipped_counts", {}),
    )


def violation(found: Members) -> Violation:
    """Return what is wrong with a row, and where it is."""
    return Violation(
        file=found["file"],
        line=found["line"] if "line" in found else found["row"],
        entity=found["entity"],
        reason=found["reason"],
        row_group=found.get("row_group"),
    )


def schema_result(found: Members) -> SchemaResult:
    """Return what a change of the schema did."""
    return SchemaResult(
        supported=found["supported"],
        applied=found["applied"],
        commit=optional_commit(found["commit"]),
        manifest_version=found["graph_manifest_version"],
        steps=tuple(_step(one) for one in found["steps"]),
    )


def table_infos(found: Members) -> dict[str, TableInfo]:
    """Return the tables of a snapshot."""
    return {
        one["table_key"]: TableInfo(
            version=one["table_version"],
            rows=one["row_count"],
            branch=one["table_branch"] or MAIN,
            path=one["table_path"],
        )
        for one in found["tables"]
    }


def explanation(found: Members) -> Explanation:
    """Return the steps of a query."""
    steps = tuple(
        QueryStep(
            name=one["step"],
            detail=one["detail"],
            depth=one["depth"],
            rows=one["rows"],
            milliseconds=one["milliseconds"],
            how=one["how"],
        )
        for one in found["steps"]
    )
    return Explanation(found["query_name"], steps, found["rows"], found["milliseconds"])


# --- merges ---------------------------------------------------------------------------------------


def merge_result(found: Members) -> MergeResult:
    """Return what a merge did."""
    return MergeResult(
        source=found["source"],
        target=found["target"],
        outcome=MergeOutcome(found["outcome"]),
        commit=optional_commit(found.get("commit")),
        changes=change_counts(found["changes"]),
        resolved=found["resolved"],
        branch_deleted=found.get("branch_deleted"),
        branch_delete_error=found.get("branch_delete_error"),
        given_up=_given_up(found),
        given_up_count=found.get("given_up_count", 0),
        by_branch=_by_branch(found),
    )


def merge_preview(found: Members) -> MergePreview:
    """Return what a merge would do."""
    met = tuple(merge_conflict(one) for one in found["met"])
    return MergePreview(
        source=found["source"],
        target=found["target"],
        outcome=MergeOutcome(found["outcome"]),
        changes=change_counts(found["changes"]),
        conflicts=tuple(merge_conflict(one) for one in found["merge_conflicts"]),
        resolved=found["resolved"],
        granularity=_granularity(found["granularity"]),
        choices=_choices(found["resolutions"], met),
        met=met,
        given_up=_given_up(found),
        given_up_count=found["given_up_count"],
        by_branch=_by_branch(found),
    )


def merge_conflict(found: Members) -> MergeConflict:
    """Return two changes that contradict each other."""
    return MergeConflict(
        table_key=found["table_key"],
        entity_id=found["entity_id"],
        kind=ConflictKind(found["kind"]),
        message=found["message"],
        base=_optional_image(found.get("base")),
        source=_optional_image(found.get("source")),
        target=_optional_image(found.get("target")),
        properties=tuple(found.get("properties", ())),
        source_changed=tuple(found.get("source_changed", ())),
        target_changed=tuple(found.get("target_changed", ())),
    )


def _choices(file: Members, met: tuple[MergeConflict, ...]) -> MergeChoices:
    """Return the decisions in a file of resolutions; its tables are those of the conflicts."""
    return read_resolutions(file, {*file.get("types", ()), *(one.table_key for one in met)}).choices


def _granularity(found: str | Members) -> GranularityByType:
    if isinstance(found, str):
        return MergeGranularity(found)
    return {key: MergeGranularity(one) for key, one in found.items()}


def _by_branch(found: Members) -> dict[str, BranchChanges]:
    counts = found.get("by_branch", {})
    return {
        key: BranchChanges(ChangeCounts(**one["source"]), ChangeCounts(**one["target"]))
        for key, one in counts.items()
    }


def _given_up(found: Members) -> tuple[DroppedValues, ...]:
    return tuple(
        DroppedValues(
            table_key=f"{one['entity_kind']}:{one['type_name']}",
            entity_id=one["entity_id"],
            source=one.get("source", {}),
            target=one.get("target", {}),
        )
        for one in found.get("given_up", ())
    )


# --- changes --------------------------------------------------------------------------------------


def change_counts(found: Members) -> dict[str, ChangeCounts]:
    """Return counts by table."""
    return {key: ChangeCounts(one["inserted"], one["updated"], one["deleted"]) for key, one in found.items()}


def change(found: Members) -> Change:
    """Return a change of one entity."""
    return Change(
        kind=found["kind"],
        type_name=found["type"]["name"],
        id=found["id"],
        op=ChangeOperation(found["op"]),
        before=_optional_image(found.get("before")),
        after=_optional_image(found.get("after")),
        changed=tuple(found.get("changed", ())),
    )


def entity_history(found: Members) -> EntityHistory:
    """Return the history of one entity."""
    changes = (EntityChange(commit(one["commit"]), change(one["change"])) for one in found["changes"])
    return EntityHistory(tuple(changes), found["reclaimed"])


def change_page(found: Members) -> ChangePage:
    """Return a page of a feed."""
    blocks = tuple(ChangeBlock(_cause(one["cause"]), _changes(one)) for one in found["blocks"])
    return ChangePage(blocks, found.get("next_page_token"), found.get("cursor"))


def commit_page(found: Members) -> CommitPage:
    """Return a page of what one commit changed."""
    return CommitPage(_cause(found["cause"]), _changes(found), found.get("next_page_token"))


def _changes(found: Members) -> tuple[Change, ...]:
    return tuple(change(one) for one in found["changes"])


def _cause(found: Members) -> Commit:
    return Commit(
        id=found["graph_commit_id"],
        branch=found["authored_branch"],
        version=found["graph_manifest_version"],
        created_at=found["authored_at"],
        parent=found.get("parent_commit_id"),
        merged_parent=found.get("merged_parent_commit_id"),
        actor=found.get("actor_id"),
        message=found.get("message"),
        operation=found.get("operation"),
    )


def _optional_image(found: Members | None) -> EntityImage | None:
    if found is None:
        return None
    ends = found.get("endpoints") or {}
    return EntityImage(found["properties"], ends.get("from"), ends.get("to"))


# --- steps of a schema change ---------------------------------------------------------------------

_STEPS: Mapping[str, Any] = {kind.kind: kind for kind in get_args(MigrationStep)}
_FIELD_NAMES = {"old": "from", "new": "to"}


def _step(found: Members) -> MigrationStep:
    kind = _STEPS[found["kind"]]
    values = {}
    for each in fields(kind):
        name = _FIELD_NAMES.get(each.name, each.name)
        values[each.name] = _step_value(each.name, found.get(name))
    step: MigrationStep = kind(**values)
    return step


def _step_value(name: str, value: Any) -> Any:
    if isinstance(value, dict) and "scalar" in value:
        return _value_type(value)
    if name == "annotations":
        return tuple(
            Annotation(one["name"], one.get("value"), tuple(map(tuple, one.get("arguments", ()))))
            for one in value or ()
        )
    return tuple(value) if isinstance(value, list) and name == "added_values" else value


def _value_type(found: Members) -> ValueType:
    scalar = found["scalar"]
    if isinstance(scalar, dict):
        return vector_type(scalar["Vector"], nullable=found["nullable"])
    return ValueType(SCALARS[scalar], found["nullable"], found["list"], tuple(found["enum_values"] or ()))
