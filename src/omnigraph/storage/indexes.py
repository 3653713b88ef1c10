"""Indexes of a table: staged like any other change, and how much of the table they cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lance import Index, LanceOperation

from omnigraph.storage.staging import Staged, unfenced
from omnigraph.storage.tables import Table


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """One index to be built: BTREE, INVERTED, IVF_PQ, ... on one column."""

    column: str
    type: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IndexCoverage:
    """How far a stored index reaches."""

    name: str
    columns: tuple[str, ...]
    type: str
    segments: int
    covered_fragments: int
    total_fragments: int

    @property
    def is_complete(self) -> bool:
        """Whether every fragment of the table is in the index."""
        return self.covered_fragments == self.total_fragments


def stage_indexes(table: Table, specs: Sequence[IndexSpec]) -> Staged:
    """These indexes, built over the whole table, in one change; a stored one of the same name is replaced."""
    with table.access.call("stage_indexes", table.uri):
        stored = {found.name: found for found in table.native.describe_indices()}
        built = [_built(table, spec, spec.name in stored) for spec in specs]
        replaced = [
            segment for spec in specs if spec.name in stored for segment in _segments(stored[spec.name])
        ]
        operation = LanceOperation.CreateIndex(new_indices=built, removed_indices=replaced)
        return Staged(table, unfenced(table, operation))


def coverage(table: Table) -> dict[str, IndexCoverage]:
    """Every stored index by name."""
    with table.access.call("describe_indexes", table.uri):
        stored = table.native.describe_indices()
    present = {int(fragment.fragment_id) for fragment in table.native.get_fragments()}
    return {found.name: _described(found, present) for found in stored}


def _built(table: Table, spec: IndexSpec, replace: bool) -> Index:
    fragments = [int(fragment.fragment_id) for fragment in table.native.get_fragments()]
    built = table.native.create_index_uncommitted(
        spec.column, spec.type, name=spec.name, fragment_ids=fragments, replace=replace, **spec.options
    )
    # A text index whose segment was not merged commits and then cannot be queried.
    return table.native.merge_existing_index_segments([built]) if spec.type == "INVERTED" else built


def _segments(stored: Any) -> list[Index]:
    return [
        Index(
            uuid=segment.uuid,
            name=stored.name,
            fields=stored.fields,
            dataset_version=segment.dataset_version_at_last_update,
            fragment_ids=segment.fragment_ids,
            index_version=segment.index_version,
        )
        for segment in stored.segments
    ]


def _described(stored: Any, present: set[int]) -> IndexCoverage:
    covered = {int(fragment) for segment in stored.segments for fragment in segment.fragment_ids}
    return IndexCoverage(
        name=stored.name,
        columns=tuple(stored.field_names),
        type=stored.index_type,
        segments=len(stored.segments),
        covered_fragments=len(covered & present),
        total_fragments=len(present),
    )
