"""Indexes of a table: staged like any other change, and how much of the table they cover."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lance import Index, LanceOperation

from omnigraph.storage.index_parts import (
    BTREE,
    INVERTED,
    BuildParts,
    IndexPart,
    build_here,
    divided,
    joined,
    of_one_partition,
    ready,
)
from omnigraph.storage.lance_errors import Trouble, failure
from omnigraph.storage.search import ANALYSER
from omnigraph.storage.staging import Staged, unfenced
from omnigraph.storage.tables import Table, newest

_SAME = {"BTree": BTREE, "Inverted": INVERTED}
"""Lance describes some kinds by other words than it takes."""


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """One index to be built: BTREE, INVERTED, IVF_FLAT, ... on one column."""

    column: str
    type: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of an index, built at one time over some fragments."""

    uuid: str
    fragments: frozenset[int]
    """Those that the table still has."""
    inherited: bool = field(default=False, compare=False)
    """Whether its files are with the table that a fork was made from."""


@dataclass(frozen=True, slots=True)
class IndexCoverage:
    """How far a stored index reaches."""

    name: str
    columns: tuple[str, ...]
    type: str
    segments: int
    covered_fragments: int
    total_fragments: int
    parts: tuple[Segment, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether every fragment of the table is in the index."""
        return self.covered_fragments == self.total_fragments

    @property
    def kind(self) -> str:
        """The kind as `IndexSpec` names it."""
        return _SAME.get(self.type, self.type)

    @property
    def covered(self) -> frozenset[int]:
        """The fragments of the table that are in the index."""
        return frozenset().union(*(part.fragments for part in self.parts))


def text_index(column: str, name: str) -> IndexSpec:
    """A full-text index with the one analyser."""
    return IndexSpec(column, INVERTED, name, ANALYSER)


@dataclass(frozen=True, slots=True)
class Extension:
    """A new segment of an index, and the stored segments it stands for from then on."""

    spec: IndexSpec
    fragments: frozenset[int]
    replaced: frozenset[str] = frozenset()


def stage_indexes(table: Table, specs: Sequence[IndexSpec], build: BuildParts | None = None) -> Staged:
    """These indexes, built over the whole table, in one change; a stored one of the same name is replaced."""
    return stage_extensions(table, anew(table, specs), build)


def anew(table: Table, specs: Sequence[IndexSpec]) -> list[Extension]:
    """These indexes over the whole table, each in the place of a stored one of its name."""
    stored = coverage(table)
    every = frozenset(_fragment_ids(table))
    return [
        Extension(spec, every, frozenset(part.uuid for part in stored[spec.name].parts))
        if spec.name in stored
        else Extension(spec, every)
        for spec in specs
    ]


def stage_extensions(
    table: Table, extensions: Sequence[Extension], build: BuildParts | None = None
) -> Staged:
    """Segments over these fragments, in one change: what it costs follows those fragments.

    A segment of a text index has to replace all others: of two of them the older one still finds what rows
    said before they were updated. With `build`, a large segment is built in parts, wherever it likes, and put
    together here.
    """
    with table.access.call("stage_indexes", table.uri):
        stored = {found.name: found for found in table.native.describe_indices()}
        wanted = [_part(table, one, one.spec.name in stored) for one in extensions]
        parts = wanted if build is None else [part for one in wanted for part in divided(table, one)]
        segments: dict[str, list[Index]] = {one.spec.name: [] for one in extensions}
        for segment in (build or build_here)(table, parts):
            segments[segment.name].append(segment)
        built = [joined(table, one.spec.type, segments[one.spec.name]) for one in extensions]
        gone = [
            old
            for one in extensions
            if one.spec.name in stored
            for old in entries(stored[one.spec.name])
            if old.uuid in one.replaced
        ]
        operation = LanceOperation.CreateIndex(new_indices=built, removed_indices=gone)
        return Staged(table, unfenced(table, operation))


def _part(table: Table, one: Extension, replaces: bool) -> IndexPart:
    spec, chosen = one.spec, tuple(sorted(one.fragments))
    part = IndexPart(spec.column, spec.type, spec.name, chosen, replaces, dict(spec.options))
    return of_one_partition(table, part) if spec.options.get("num_partitions") == 0 else ready(table, part)


def catch_up(table: Table, names: Sequence[str]) -> Table:
    """The table after its text indexes of these names have taken in the rows outside; each stays one segment.

    Only the new texts are read. What the index knows already is copied, without what rows said before they
    were updated. Lance cannot stage this: it is a commit of its own, made on the newest version.
    """
    with table.access.call("catch_up", table.uri):
        native = copy.copy(table.native)
        native.optimize.optimize_indices(index_names=list(names))
        moved = table.moved(newest(native))
    if moved.version != table.version + 1:
        reason = f"the indexes of version {table.version} were completed in version {moved.version}"
        raise failure(Trouble.DISPLACED, "catch_up", table.uri, reason)
    return moved.settled(table)


def coverage(table: Table) -> dict[str, IndexCoverage]:
    """Every stored index by name."""
    with table.access.call("describe_indexes", table.uri):
        stored = table.native.describe_indices()
    present = frozenset(_fragment_ids(table))
    return {found.name: _described(found, present) for found in stored}


def _fragment_ids(table: Table) -> list[int]:
    return [int(fragment.fragment_id) for fragment in table.native.get_fragments()]


def entries(stored: Any) -> list[Index]:
    """The segments of an index that Lance describes, in the form in which it takes them."""
    return [
        Index(
            uuid=str(segment.uuid),
            name=stored.name,
            fields=stored.fields,
            dataset_version=segment.dataset_version_at_last_update,
            fragment_ids=segment.fragment_ids,
            index_version=segment.index_version,
            created_at=segment.created_at,
            base_id=segment.base_id,
        )
        for segment in stored.segments
    ]


def _described(stored: Any, present: frozenset[int]) -> IndexCoverage:
    parts = tuple(
        Segment(
            str(segment.uuid),
            present & {int(one) for one in segment.fragment_ids},
            segment.base_id is not None,
        )
        for segment in stored.segments
    )
    return IndexCoverage(
        name=stored.name,
        columns=tuple(stored.field_names),
        type=stored.index_type,
        segments=len(parts),
        covered_fragments=len(frozenset().union(*(part.fragments for part in parts))),
        total_fragments=len(present),
        parts=parts,
    )
