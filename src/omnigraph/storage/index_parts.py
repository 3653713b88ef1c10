"""Build an index in parts, in any process, and merge them where it is staged.

Parts of scalar and text indexes are split by rows. Vectors are clustered around centres that all parts must
share, so these are computed first, from a sample. The cost of a part follows its own fragments.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from datetime import datetime
from typing import Any, TypeAlias
from uuid import uuid4

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import Index
from lance.bitmap import Bitmap
from lance.dataset import IndexFile
from lance.file import LanceFileSession
from lance.indices import IndicesBuilder

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import StorageFailure
from omnigraph.storage.fragments import group_by_rows, list_fragments
from omnigraph.storage.search import PARTITION_ROWS
from omnigraph.storage.tables import Table, storage_options

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


def split_part(table: Table, part: IndexPart) -> list[IndexPart]:
    """Split an index part into parts of the size of a task; a smaller one stays as it is."""
    wanted = frozenset(part.fragments)
    within = [one for one in list_fragments(table) if one.id in wanted]
    cut = [tuple(one.id for one in some) for some in group_by_rows(within, _rows_per_part(table, part))]
    if len(cut) < 2:
        return [part]
    return [replace(_with_centres(table, part), fragments=some) for some in cut]


def _rows_per_part(table: Table, part: IndexPart) -> int:
    if part.type != IVF_FLAT:
        return _ROWS_PER_PART
    kind = table.schema.field(part.column).type
    bits: int = kind.list_size * kind.value_type.bit_width
    return max(1, _VECTOR_BYTES_PER_PART * 8 // bits)


def prepare_part(table: Table, part: IndexPart) -> IndexPart:
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
        return as_single_partition(table, part)
    sample = _sample_vectors(table, part, count * _SAMPLED_PER_PARTITION)
    model = IndicesBuilder(lance.write_dataset(sample, f"memory://{uuid4()}"), part.column).train_ivf(
        count,
        distance_type=part.options["metric"].lower(),
        sample_rate=max(1, min(_SAMPLED_PER_PARTITION, sample.num_rows // count)),
    )
    return replace(part, options={**part.options, _CENTRES: model.centroids})


def _sample_vectors(table: Table, part: IndexPart, size: int) -> pa.Table:
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


def as_single_partition(table: Table, part: IndexPart) -> IndexPart:
    """Return the part with a single partition and any centre, which works for an empty table too."""
    kind = table.schema.field(part.column).type
    centre = pa.array([[0.0] * kind.list_size], kind)
    return replace(part, options={**part.options, "num_partitions": 1, _CENTRES: centre})


def build_in_process(table: Table, parts: Sequence[IndexPart]) -> list[BuiltPart]:
    """Build all parts in this process, one after another; each uses all cores."""
    return [build_part(table, part) for part in parts]


def build_part(table: Table, part: IndexPart) -> BuiltPart:
    """Build a part of an index; it is invisible until it is staged with the others."""
    # A handle is locked while it builds, and this one is shared: use a copy.
    built: Index = copy.copy(table.native).create_index_uncommitted(
        part.column,
        part.type,
        name=part.name,
        fragment_ids=list(part.fragments),
        replace=part.replaces,
        **part.options,
    )
    return built


@dataclass(frozen=True, slots=True)
class PackedPart:
    """A part that was built, as plain values: so it travels between processes."""

    values: Mapping[str, Any]
    fragments: tuple[int, ...]
    created_at: str | None
    files: tuple[tuple[str, int], ...] | None


def pack_part(part: BuiltPart) -> PackedPart:
    """Return a built part as plain values."""
    values = {one.name: getattr(part, one.name) for one in fields(Index)}
    covered, created, files = (values.pop(name) for name in ("fragment_ids", "created_at", "files"))
    return PackedPart(
        values,
        tuple(sorted(covered)),
        None if created is None else created.isoformat(),
        None if files is None else tuple((file.path, file.size_bytes) for file in files),
    )


def unpack_part(packed: PackedPart) -> BuiltPart:
    """Return the part that was packed."""
    return Index(
        **packed.values,
        fragment_ids=Bitmap(packed.fragments),
        created_at=None if packed.created_at is None else datetime.fromisoformat(packed.created_at),
        files=None if packed.files is None else [IndexFile(*file) for file in packed.files],
    )


def merge_parts(table: Table, kind: str, parts: Sequence[BuiltPart]) -> Index:
    """Merge all parts of an index into one segment."""
    # A text index whose segment was not merged commits and then cannot be queried.
    if len(parts) == 1 and kind != INVERTED:
        return parts[0]
    made = join_parts(table, parts)
    remove_parts(table, [part for part in parts if part.uuid != made.uuid])
    return made


def join_parts(table: Table, parts: Sequence[BuiltPart]) -> BuiltPart:
    """Write the segment that holds all parts of an index; their files stay, so that it can be repeated."""
    made: Index = copy.copy(table.native).merge_existing_index_segments(list(parts))
    return made


def remove_parts(table: Table, parts: Sequence[BuiltPart]) -> None:
    """Remove the files of parts: together they take as much space as the merged index."""
    try:
        with table.access.call("remove_parts", table.uri):
            folder = LanceFileSession(table.uri, storage_options=storage_options(table.location))
            for part in parts:
                for path in folder.list(f"_indices/{part.uuid}"):
                    folder.delete_file(path)
    except StorageFailure as failure:
        _log.warning("parts of an index are left behind until they are cleaned up: %s", failure)
