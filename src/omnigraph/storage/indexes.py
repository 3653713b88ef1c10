"""Stage indexes of a table like any other change, and read how much of the table they cover."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from lance import Index, LanceOperation

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import StorageFailure
from omnigraph.storage.failures import TableFailureKind, table_failure
from omnigraph.storage.index_parts import (
    BTREE,
    INVERTED,
    BuildParts,
    IndexPart,
    as_single_partition,
    build_in_process,
    merge_parts,
    prepare_part,
    split_part,
)
from omnigraph.storage.search import analyser_of, has_analyser
from omnigraph.storage.staging import Staged, build_transaction
from omnigraph.storage.tables import Table, checkout_newest

_log = logging.getLogger(__name__)

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
    metric: str = "l2"
    """How an index of vectors compares."""
    details: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """How Lance describes it."""

    def has_language(self, language: str) -> bool:
        """Whether it is an index of texts of this language."""
        return has_analyser(self.details, language)

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


def text_index_spec(column: str, name: str, language: str = "english") -> IndexSpec:
    """A full-text index of texts of a language."""
    return IndexSpec(column, INVERTED, name, analyser_of(language))


@dataclass(frozen=True, slots=True)
class IndexExtension:
    """A new segment of an index, and the stored segments it stands for from then on."""

    spec: IndexSpec
    fragments: frozenset[int]
    replaced: frozenset[str] = frozenset()


def stage_indexes(table: Table, specs: Sequence[IndexSpec], build: BuildParts | None = None) -> Staged:
    """Stage these indexes over the whole table in one change; a stored one of the same name is replaced."""
    return stage_extensions(table, plan_rebuilds(table, specs), build)


def plan_rebuilds(table: Table, specs: Sequence[IndexSpec]) -> list[IndexExtension]:
    """Return extensions that build these indexes over the whole table, replacing stored ones of the name."""
    stored = read_coverage(table)
    every = frozenset(_fragment_ids(table))
    return [
        IndexExtension(spec, every, frozenset(part.uuid for part in stored[spec.name].parts))
        if spec.name in stored
        else IndexExtension(spec, every)
        for spec in specs
    ]


@dataclass(frozen=True, slots=True)
class RefusedIndex:
    """An index that cannot be built from the values of its column."""

    column: str
    reason: str


OnRefusedIndex = Callable[[RefusedIndex], None]
"""Called with every index that is skipped."""


def log_refused_index(refused: RefusedIndex) -> None:
    """Log an index that is skipped."""
    _log.warning("the index of column '%s' was not built: %s", refused.column, refused.reason)


_REFUSALS = frozenset({TableFailureKind.INVALID, TableFailureKind.UNKNOWN})


def stage_buildable(
    table: Table,
    extensions: Sequence[IndexExtension],
    refused: OnRefusedIndex,
    build: BuildParts | None = None,
) -> Staged | None:
    """Stage the extensions that Lance can build and report the others; None when it can build none."""
    try:
        return stage_extensions(table, extensions, build)
    except StorageFailure as failure:
        if failure.kind not in _REFUSALS:
            raise
        if len(extensions) == 1:
            refused(RefusedIndex(extensions[0].spec.column, failure.message))
            return None
    # Rare, and orphan files cost little: building one at a time shows which index was refused.
    built = [one for one in extensions if stage_buildable(table, [one], refused, build) is not None]
    return stage_extensions(table, built, build) if built else None


def stage_extensions(
    table: Table, extensions: Sequence[IndexExtension], build: BuildParts | None = None
) -> Staged:
    """Stage segments over these fragments, in one change, at a cost that follows those fragments.

    A segment of a text index has to replace all others: of two segments the older one still finds the texts
    that rows had before they were updated. With `build`, a large segment is built in parts, in any process,
    and merged here.
    """
    with table.access.call("stage_indexes", table.uri):
        stored = {found.name: found for found in table.native.describe_indices()}
        wanted = [_to_part(table, one, one.spec.name in stored) for one in extensions]
        parts = wanted if build is None else [part for one in wanted for part in split_part(table, one)]
        segments: dict[str, list[Index]] = {one.spec.name: [] for one in extensions}
        for segment in (build or build_in_process)(table, parts):
            segments[segment.name].append(segment)
        built = [merge_parts(table, one.spec.type, segments[one.spec.name]) for one in extensions]
        gone = [
            old
            for one in extensions
            if one.spec.name in stored
            for old in list_segments(stored[one.spec.name])
            if old.uuid in one.replaced or _is_replaced_whole(stored[one.spec.name], one.spec)
        ]
        operation = LanceOperation.CreateIndex(new_indices=built, removed_indices=gone)
        return Staged(table, build_transaction(table, operation))


def _is_small_cosine(spec: IndexSpec) -> bool:
    """Whether to do without a training, which fails where all of a sample are zero vectors."""
    return spec.options.get("metric") == "COSINE" and spec.options["num_partitions"] == 1


def _is_replaced_whole(stored: Any, spec: IndexSpec) -> bool:
    """Whether no segment of a stored index can stay: it is one of texts, or of vectors by another metric."""
    if spec.type == INVERTED:
        return True
    return "metric" in spec.options and stored.details.get("metric_type") != spec.options["metric"]


def _to_part(table: Table, one: IndexExtension, replaces: bool) -> IndexPart:
    spec, chosen = one.spec, tuple(sorted(one.fragments))
    part = IndexPart(spec.column, spec.type, spec.name, chosen, replaces, dict(spec.options))
    return (
        as_single_partition(table, part)
        if spec.options.get("num_partitions") == 0 or _is_small_cosine(spec)
        else prepare_part(table, part)
    )


def catch_up_text_indexes(table: Table, names: Sequence[str]) -> Table:
    """Add unindexed rows to these text indexes and return the new table; each index stays one segment.

    Only the new texts are read; indexed ones are copied, without texts that were updated since. Lance cannot
    stage this: it is a commit of its own, made on the newest version.
    """
    table.before_commit()
    with table.access.call("catch_up", table.uri):
        native = copy.copy(table.native)
        native.optimize.optimize_indices(index_names=list(names))
        moved = table.with_handle(checkout_newest(native))
    if moved.version != table.version + 1:
        reason = f"the indexes of version {table.version} were completed in version {moved.version}"
        raise table_failure(TableFailureKind.DISPLACED, "catch_up", table.uri, reason)
    return moved.make_durable(table)


def read_coverage(table: Table) -> dict[str, IndexCoverage]:
    """Return how far every stored index reaches, by name."""
    with table.access.call("describe_indexes", table.uri):
        stored = table.native.describe_indices()
    present = frozenset(_fragment_ids(table))
    return {found.name: _describe_index(found, present) for found in stored}


def _fragment_ids(table: Table) -> list[int]:
    return [int(fragment.fragment_id) for fragment in table.native.get_fragments()]


def list_segments(stored: Any) -> list[Index]:
    """Return the segments of an index that Lance describes, in the form in which it accepts them."""
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


def _describe_index(stored: Any, present: frozenset[int]) -> IndexCoverage:
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
        metric=str(stored.details.get("metric_type", "l2")).lower(),
        details=stored.details,
    )


LONGEST = 9.0e18
"""Up to this length the squared distance of two vectors is a finite number of 32 bits, whatever they are."""


def find_overlong_vector(
    table: Table, column: str, fragments: Collection[int] | None = None, *, most_bytes: int | None = None
) -> float | None:
    """Return the length of a vector of which no index can be built; None when there is no such vector.

    Only rows of these fragments count, and with `most_bytes` only the first so many bytes of vectors.
    """
    wanted = None if fragments is None else frozenset(fragments)
    pieces = [one for one in table.native.get_fragments() if wanted is None or int(one.fragment_id) in wanted]
    if not pieces:
        return None
    width, read = table.schema.field(column).type.list_size, 0
    with table.access.call("scan", table.uri):
        for batch in table.native.scanner(columns=[column], fragments=pieces).to_batches():
            values = batch.column(0).drop_null().flatten().to_numpy(zero_copy_only=False)
            vectors = values.reshape(-1, width).astype(np.float64)
            longest = float(np.sqrt(np.einsum("ij,ij->i", vectors, vectors).max(initial=0.0)))
            if longest > LONGEST:
                return longest
            read += values.nbytes
            if most_bytes is not None and read >= most_bytes:
                break
    return None


SHORTEST = 1e-18
"""Vectors up to this length have no direction in 32 bits: an index by cosine leaves them out."""


def count_directions(table: Table, column: str, fragments: Collection[int] | None = None) -> int:
    """Return how many vectors of these fragments an index by cosine can hold."""
    wanted = None if fragments is None else frozenset(fragments)
    pieces = [one for one in table.native.get_fragments() if wanted is None or int(one.fragment_id) in wanted]
    if not pieces:
        return 0
    width, found = table.schema.field(column).type.list_size, 0
    with table.access.call("scan", table.uri):
        for batch in table.native.scanner(columns=[column], fragments=pieces).to_batches():
            values = batch.column(0).drop_null().flatten().to_numpy(zero_copy_only=False)
            vectors = values.reshape(-1, width).astype(np.float64)
            lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
            found += int(np.count_nonzero(np.isfinite(lengths) & (lengths > SHORTEST)))
    return found
