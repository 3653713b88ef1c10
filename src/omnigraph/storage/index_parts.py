"""An index that is built in parts, wherever that is, and put together where it is staged.

Parts of scalars and of texts are cut by rows. Vectors are kept around centres, which all parts must share:
these are found first, from a sample. A part costs what its own fragments cost.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from uuid import uuid4

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import Index
from lance.file import LanceFileSession
from lance.indices import IndicesBuilder

from omnigraph.errors import StorageFailure
from omnigraph.storage.fragments import fragments, portions
from omnigraph.storage.search import PARTITION_ROWS
from omnigraph.storage.tables import Table, options

BTREE, INVERTED, IVF_FLAT = "BTREE", "INVERTED", "IVF_FLAT"

_ROWS_PER_PART = 4 << 20
_VECTOR_BYTES_PER_PART = 512 << 20
_CENTRES = "ivf_centroids"
_SAMPLED_PER_PARTITION = 256
"""So many vectors are enough to find a centre, by Lance's own measure."""
_SAMPLED_SHARE = _SAMPLED_PER_PARTITION / PARTITION_ROWS
"""Which part of all vectors that is, however many rows have none."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IndexPart:
    """An index over some of the fragments; it travels between processes."""

    column: str
    type: str
    name: str
    fragments: tuple[int, ...]
    replaces: bool
    """Whether one of its name is stored."""
    options: Mapping[str, Any] = field(default_factory=dict)


BuiltPart: TypeAlias = Index
BuildParts = Callable[[Table, Sequence[IndexPart]], Iterable[BuiltPart]]
"""Builds parts, in any order."""


def divided(table: Table, part: IndexPart) -> list[IndexPart]:
    """The same in parts of a size that a task is for; one that is no larger stays as it is."""
    wanted = frozenset(part.fragments)
    within = [one for one in fragments(table) if one.id in wanted]
    cut = [tuple(one.id for one in some) for some in portions(within, _rows_per_part(table, part))]
    if len(cut) < 2:
        return [part]
    return [replace(_with_centres(table, part), fragments=some) for some in cut]


def _rows_per_part(table: Table, part: IndexPart) -> int:
    if part.type != IVF_FLAT:
        return _ROWS_PER_PART
    kind = table.schema.field(part.column).type
    bits: int = kind.list_size * kind.value_type.bit_width
    return max(1, _VECTOR_BYTES_PER_PART * 8 // bits)


def ready(table: Table, part: IndexPart) -> IndexPart:
    """The same, with centres where Lance would take far too long to find them.

    It picks its sample row by row, and in a fragment with deleted rows it counts for each of them from the
    first row on.
    """
    wanted = frozenset(part.fragments)
    found = (one for one in table.native.get_fragments() if int(one.fragment_id) in wanted)
    if part.type == IVF_FLAT and any(one.num_deletions for one in found):
        return _with_centres(table, part)
    return part


def _with_centres(table: Table, part: IndexPart) -> IndexPart:
    """The same, with the centres of its partitions; a part that has none or has them already stays."""
    if part.type != IVF_FLAT or _CENTRES in part.options:
        return part
    count = part.options["num_partitions"]
    if count == 1:
        return of_one_partition(table, part)
    sample = _sample(table, part, count * _SAMPLED_PER_PARTITION)
    model = IndicesBuilder(lance.write_dataset(sample, f"memory://{uuid4()}"), part.column).train_ivf(
        count,
        distance_type=part.options["metric"].lower(),
        sample_rate=max(1, min(_SAMPLED_PER_PARTITION, sample.num_rows // count)),
    )
    return replace(part, options={**part.options, _CENTRES: model.centroids})


def _sample(table: Table, part: IndexPart, size: int) -> pa.Table:
    """About so many of the vectors, or all if there are fewer, from anywhere in the fragments."""
    chance = np.random.default_rng(len(part.fragments))
    wanted = frozenset(part.fragments)
    pieces = [one for one in table.native.get_fragments() if int(one.fragment_id) in wanted]
    share = max(size / max(1, sum(one.metadata.num_rows for one in pieces)), _SAMPLED_SHARE)
    scanner = table.native.scanner(columns=[part.column], fragments=pieces)
    chosen = []
    for batch in scanner.to_batches():
        vectors = batch.column(0)
        picked = chance.random(len(vectors)) < share
        chosen.append(vectors.filter(pc.and_(pa.array(picked), vectors.is_valid())))
    return pa.table({part.column: pa.chunked_array(chosen)})


def of_one_partition(table: Table, part: IndexPart) -> IndexPart:
    """A part with a single partition: any centre serves, and none has to be found where there is nothing."""
    kind = table.schema.field(part.column).type
    centre = pa.array([[0.0] * kind.list_size], kind)
    return replace(part, options={**part.options, "num_partitions": 1, _CENTRES: centre})


def build_here(table: Table, parts: Sequence[IndexPart]) -> list[BuiltPart]:
    """All parts, by this process; each of them takes all its cores by itself."""
    return [build_part(table, part) for part in parts]


def build_part(table: Table, part: IndexPart) -> BuiltPart:
    """A part of an index, which nobody sees before it is staged with the others."""
    # While it builds, nobody else can use the handle, and others share this one.
    built: Index = copy.copy(table.native).create_index_uncommitted(
        part.column,
        part.type,
        name=part.name,
        fragment_ids=list(part.fragments),
        replace=part.replaces,
        **part.options,
    )
    return built


def joined(table: Table, kind: str, parts: Sequence[BuiltPart]) -> Index:
    """One segment of all parts of an index."""
    # A text index whose segment was not merged commits and then cannot be queried.
    if len(parts) == 1 and kind != INVERTED:
        return parts[0]
    made = copy.copy(table.native).merge_existing_index_segments(list(parts))
    _remove(table, [part for part in parts if part.uuid != made.uuid])
    return made


def _remove(table: Table, parts: Sequence[BuiltPart]) -> None:
    """Remove the files of parts: together they take as much room as the index that was made of them."""
    try:
        with table.access.call("remove_parts", table.uri):
            folder = LanceFileSession(table.uri, storage_options=options(table.location))
            for part in parts:
                for path in folder.list(f"_indices/{part.uuid}"):
                    folder.delete_file(path)
    except StorageFailure as failure:
        _log.warning("parts of an index are left behind until they are cleaned up: %s", failure)
