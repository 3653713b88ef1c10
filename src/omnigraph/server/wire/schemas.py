"""The schema and its changes."""

from __future__ import annotations

from typing import Any

from omnigraph.engine.schema_apply.apply import SchemaResult
from omnigraph.server.wire.base import Wire
from omnigraph.server.wire.commits import CommitOutput


class SchemaOutput(Wire, frozen=True, kw_only=True):
    """The accepted schema as its author wrote it."""

    schema_source: str


class SchemaApplyRequest(Wire, frozen=True, kw_only=True):
    """A schema to change to."""

    schema_source: str
    allow_data_loss: bool = False
    message: str | None = None


class SchemaApplyOutput(Wire, frozen=True, kw_only=True):
    """What a change of the schema did."""

    uri: str
    supported: bool
    applied: bool
    step_count: int
    graph_commit_id: str | None
    graph_manifest_version: int
    manifest_version: int
    steps: list[dict[str, Any]]
    commit: CommitOutput | None


def schema_apply_output(done: SchemaResult, uri: str) -> SchemaApplyOutput:
    """Return the body of a schema change's result."""
    return SchemaApplyOutput(
        uri=uri,
        supported=done.supported,
        applied=done.applied,
        step_count=len(done.steps),
        graph_commit_id=done.commit.id if done.commit else None,
        graph_manifest_version=done.manifest_version,
        manifest_version=done.manifest_version,
        steps=[step.to_json() for step in done.steps],
        commit=CommitOutput.of_optional(done.commit),
    )
