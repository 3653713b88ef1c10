"""Indexes of a table: staged like any other change, and how much of the table they cover."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lance import Index, LanceOperation

from omnigraph.storage.fragments import fragments, portions
from omnigraph.storage.search import ANALYSER
from omnigraph.storage.staging import Staged, unfenced
from omnigraph.storage.tables import Table

BTREE, INVERTED, IVF_FLAT = "BTREE", "INVERTED", "IVF_FLAT"

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
class IndexPart:
    """An index over some of the fragments; it travels between processes."""

    spec: IndexSpec
    fragments: tuple[int, ...]
    replaces: bool
    """Whether one of its name is stored."""


BuiltPart: TypeAlias = Index
BuildParts = Callable[[Table, Sequence[IndexPart]], Iterable[BuiltPart]]
"""Builds parts, in any order."""

_ROWS_PER_PART = 4 << 20


def stage_indexes(table: Table, specs: Sequence[IndexSpec], build: BuildParts | None = None) -> Staged:
    """These indexes, built over the whole table, in one change; a stored one of the same name is replaced.

    With `build`, that of a large table is built in parts, wherever it likes, and put together here.
    """
    with table.access.call("stage_indexes", table.uri):
        stored = {found.name: found for found in table.native.describe_indices()}
        parts = [part for spec in specs for part in _parts(table, spec, spec.name in stored, build is None)]
        segments: dict[str, list[Index]] = {spec.name: [] for spec in specs}
        for segment in (build or _built_here)(table, parts):
            segments[segment.name].append(segment)
        built = [_joined(table, spec, segments[spec.name]) for spec in specs]
        replaced = [
            segment for spec in specs if spec.name in stored for segment in entries(stored[spec.name])
        ]
        operation = LanceOperation.CreateIndex(new_indices=built, removed_indices=replaced)
        return Staged(table, unfenced(table, operation))


def _parts(table: Table, spec: IndexSpec, replaces: bool, whole: bool) -> list[IndexPart]:
    # Vectors are parted around centres that must be the same in all parts, and each would find its own.
    if whole or spec.type not in (BTREE, INVERTED):
        return [IndexPart(spec, tuple(_fragment_ids(table)), replaces)]
    chosen = portions(fragments(table), _ROWS_PER_PART)
    return [IndexPart(spec, tuple(one.id for one in some), replaces) for some in chosen]


def _built_here(table: Table, parts: Sequence[IndexPart]) -> list[Index]:
    return [build_part(table, part) for part in parts]


def build_part(table: Table, part: IndexPart) -> BuiltPart:
    """A part of an index, which nobody sees before it is staged with the others."""
    spec = part.spec
    # While it builds, nobody else can use the handle, and others share this one.
    built: Index = copy.copy(table.native).create_index_uncommitted(
        spec.column,
        spec.type,
        name=spec.name,
        fragment_ids=list(part.fragments),
        replace=part.replaces,
        **spec.options,
    )
    return built


def _joined(table: Table, spec: IndexSpec, segments: list[Index]) -> Index:
    # A text index whose segment was not merged commits and then cannot be queried.
    if len(segments) > 1 or spec.type == INVERTED:
        return table.native.merge_existing_index_segments(segments)
    return segments[0]


@dataclass(frozen=True, slots=True)
class Extension:
    """A new segment of a stored index, and the segments it stands for from then on."""

    spec: IndexSpec
    fragments: frozenset[int]
    replaced: frozenset[str] = frozenset()


def stage_extensions(table: Table, extensions: Sequence[Extension]) -> Staged:
    """Segments over these fragments, in one change: what it costs follows those fragments.

    Not for text: of two segments of a text index the older one still finds what rows said before they
    were updated.
    """
    with table.access.call("stage_indexes", table.uri):
        stored = {found.name: found for found in table.native.describe_indices()}
        built, gone = [], []
        for one in extensions:
            found = stored.get(one.spec.name)
            built.append(_built(table, one.spec, sorted(one.fragments), found is not None))
            gone += [old for old in entries(found) if old.uuid in one.replaced] if found else []
        operation = LanceOperation.CreateIndex(new_indices=built, removed_indices=gone)
        return Staged(table, unfenced(table, operation))


def coverage(table: Table) -> dict[str, IndexCoverage]:
    """Every stored index by name."""
    with table.access.call("describe_indexes", table.uri):
        stored = table.native.describe_indices()
    present = frozenset(_fragment_ids(table))
    return {found.name: _described(found, present) for found in stored}


def _fragment_ids(table: Table) -> list[int]:
    return [int(fragment.fragment_id) for fragment in table.native.get_fragments()]


def _built(table: Table, spec: IndexSpec, fragments: Collection[int], replace: bool) -> Index:
    return _joined(table, spec, [build_part(table, IndexPart(spec, tuple(fragments), replace))])


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
        Segment(str(segment.uuid), present & {int(one) for one in segment.fragment_ids})
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
