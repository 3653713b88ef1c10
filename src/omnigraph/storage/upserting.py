"""Rows that replace those with the same key, or are added where there is none.

Lance's own merge gathers all new rows in a memory pool of fixed size, and fails where they do not fit. Here
only keys are gathered: the stored rows with these keys are found, the new ones written with the row ids of
those they replace, and the old ones marked as deleted at their addresses. Whoever knows the row ids spares
the search for keys, which is most of the cost of a small change of a large table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceOperation as Op
from lance.fragment import FragmentMetadata, RowIdSequence, write_fragments

from omnigraph.storage.delta import CREATED_AT
from omnigraph.storage.staging import (
    Counts,
    Staged,
    fenced_update,
    refuse_duplicates,
    stage_append,
    writing_to,
)
from omnigraph.storage.tables import Rows, Table
from omnigraph.storage.taking_over import stage_takeover
from omnigraph.storage.whole import require_whole

_FEW_KEYS, _SOME_KEYS = 100, 5_000
"""Few keys are looked up by name, which an index answers, and some keys are where there are many more rows.

For others the keys of all rows are read, which costs as much as looking up one in `_WORTH`. Row ids are
cheaper to look up, and still cheaper to list.
"""
_WORTH, _ROWS_WORTH = 256, 64
_KEYS_AT_ONCE = 1 << 20
_LARGE = 200_000
"""From so many rows on, Lance's search for where replaced rows come from costs more than a second commit."""

ROW, ADDRESS = "_rowid", "_rowaddr"

Numbers = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Met:
    """The stored rows that have keys of the change."""

    places: npt.NDArray[np.int64]
    """Where in the change the key is, ascending."""
    row_ids: Numbers
    addresses: Numbers
    created: Numbers | None = None
    """The versions the rows were made in, where somebody asked for them."""

    def between(self, start: int, end: int) -> Met:
        """Those of a part of the change, counted from its start."""
        low, high = np.searchsorted(self.places, (start, end))
        return Met(self.places[low:high] - start, self.row_ids[low:high], self.addresses[low:high])

    def __len__(self) -> int:
        return len(self.places)


@dataclass(frozen=True, slots=True)
class Found:
    """Rows to be stored, and where those are that they replace; it holds for a fork of the table as well."""

    rows: pa.Table = field(repr=False)
    """Those that replace one come first."""
    met: Met

    @property
    def in_two(self) -> bool:
        """Whether the change takes two versions."""
        return self.met.created is not None and len(self.met) > 0


def stage_upsert(
    table: Table, rows: pa.Table, key: str = "id", *, replaced: pa.Array | None = None, in_two: bool = False
) -> Staged:
    """Rows to be added, or to replace the stored row with the same key, which keeps its row id.

    `replaced` are the row ids of these stored rows, null for a row that is added; where one of them is not
    stored, all keys are looked up nevertheless. `in_two` allows that the change takes two versions.
    """
    return stage_found(table, look_up(table, rows, key, replaced=replaced, in_two=in_two))


def look_up(
    table: Table, rows: pa.Table, key: str = "id", *, replaced: pa.Array | None = None, in_two: bool = False
) -> Found:
    """The first half of it, after which nothing is written yet."""
    keys = rows.column(key)
    refuse_duplicates(table, keys, "stage_upsert")
    in_two = in_two and _is_large(table) and _are_few(table, rows.num_rows, _ROWS_WORTH)
    met = None if replaced is None else find_rows(table, replaced, created=in_two)
    if met is None:
        met = find_keys(table, keys, key)
        if in_two and len(met):
            met = replace(met, created=_created(table, met))
    return Found(_met_first(rows, met), met)


def stage_found(table: Table, found: Found) -> Staged:
    """The second half: files are written."""
    with table.access.call("stage_upsert", table.uri):
        if found.in_two:
            return _staged_in_two(table, found)
        written = write_replacing(table, found.rows, found.met)
        return staged_upsert(table, written, found.met, found.rows.num_rows)


def _is_large(table: Table) -> bool:
    """Whether one commit more costs less than one that looks at all rows; in a bucket it never does."""
    native = table.native
    return table.location.is_local and table.has_stable_row_ids and bool(native.count_rows() >= _LARGE)


def _created(table: Table, met: Met) -> Numbers | None:
    found = find_rows(table, pa.array(met.row_ids, pa.uint64()), created=True)
    return None if found is None else found.created


def _staged_in_two(table: Table, found: Found) -> Staged:
    """The rows to be added, and then to take the place of those that they replace."""
    met, created = found.met, found.met.created
    assert created is not None
    added, losing = stage_append(table, found.rows), _losing(table, met)
    return replace(
        added,
        counts=Counts(inserted=found.rows.num_rows - len(met), updated=len(met)),
        then=lambda landed: stage_takeover(landed, table, met.row_ids, created, losing),
    )


def _met_first(rows: pa.Table, met: Met) -> pa.Table:
    if len(met) in (0, rows.num_rows) and _ascending(met, rows.num_rows):
        return rows
    others = np.ones(rows.num_rows, dtype=bool)
    others[met.places] = False
    return rows.take(np.concatenate([met.places, np.flatnonzero(others)]))


def _ascending(met: Met, rows: int) -> bool:
    return not len(met) or bool((met.places == np.arange(rows)).all())


def write_replacing(table: Table, rows: Rows, met: Met) -> list[FragmentMetadata]:
    """Files of rows, of which the first ones replace stored ones."""
    fragments: list[FragmentMetadata] = write_fragments(
        rows, table.native, mode="append", **writing_to(table)
    )
    return taking_the_place(fragments, met)


def taking_the_place(fragments: Sequence[FragmentMetadata], met: Met) -> list[FragmentMetadata]:
    """The same files, of which the first rows have the row ids of the stored rows they replace."""
    left = met.row_ids
    for fragment in fragments:
        own, left = left[: fragment.physical_rows], left[fragment.physical_rows :]
        if len(own):
            # Lance gives new ids to the rows behind those that have one.
            fragment.row_id_meta = RowIdSequence(pa.array(own, pa.uint64())).to_inline_metadata()
    return list(fragments)


def staged_upsert(table: Table, written: Sequence[FragmentMetadata], met: Met, rows: int) -> Staged:
    """The change that puts files in the place of the rows they replace."""
    operation = replace(_losing(table, met), new_fragments=list(written))
    require_whole("stage_upsert", table.location, table.uri, operation)
    counts = Counts(inserted=rows - len(met), updated=len(met))
    return Staged(table, fenced_update(table, operation), counts)


def _losing(table: Table, met: Met) -> Op.Update:
    """A change of the fragments that hold the rows which were met: they lose these."""
    kept, emptied = _without(table, met.addresses)
    return Op.Update(
        removed_fragment_ids=emptied,
        updated_fragments=kept,
        new_fragments=[],
        update_mode="rewrite_rows",
        # All columns of the rows are new, so no index may take their fragments for covered.
        fields_for_preserving_frag_bitmap=[column.id() for column in table.native.lance_schema.fields()],
    )


def _without(table: Table, addresses: Numbers) -> tuple[list[Any], list[int]]:
    """The fragments that lose these rows and keep others, and the numbers of those that keep none."""
    if not len(addresses):
        return [], []
    kept, emptied = [], []
    fragments = {fragment.fragment_id: fragment for fragment in table.native.get_fragments()}
    ordered = np.sort(addresses)
    numbers, starts = np.unique(ordered >> np.uint64(32), return_index=True)
    for number, rows in zip(numbers.tolist(), np.split(ordered, starts[1:]), strict=True):
        left = fragments[number].delete_rows((rows & np.uint64(0xFFFFFFFF)).tolist())
        if left is None:
            emptied.append(number)
        else:
            kept.append(left)
    return kept, emptied


# --- which stored rows have a key ------------------------------------------------------------------


def find_rows(table: Table, row_ids: pa.Array, *, created: bool = False) -> Met | None:
    """The stored rows with these row ids, nulls aside; None when one of them is not stored.

    Where a row is, and when it was made, the description of its fragment tells: no column is read.
    """
    wanted = row_ids.drop_null()
    few = _are_few(table, len(wanted), _ROWS_WORTH)
    where = f"{ROW} IN ({', '.join(map(str, wanted.to_pylist()))})" if few and len(wanted) else None
    with table.access.call("find_rows", table.uri):
        stored = table.native.scanner(
            columns=[CREATED_AT] if created else [],
            filter=where,
            with_row_id=True,
            with_row_address=True,
            scan_in_order=False,
        ).to_table()
    at = pc.index_in(wanted, value_set=stored.column(ROW).combine_chunks())
    if at.null_count:
        return None
    return Met(
        np.flatnonzero(row_ids.is_valid().to_numpy(zero_copy_only=False)),
        wanted.to_numpy(zero_copy_only=False).astype(np.uint64),
        stored.column(ADDRESS).take(at).to_numpy().astype(np.uint64),
        stored.column(CREATED_AT).take(at).to_numpy().astype(np.uint64) if created else None,
    )


def find_keys(table: Table, keys: pa.ChunkedArray, key: str = "id") -> Met:
    """The stored rows with these keys, of which there are no two alike."""
    wanted = pa.chunked_array(keys).combine_chunks()
    where = _named(wanted, key) if _are_few(table, len(wanted), _WORTH) else None

    def asked(indexed: bool) -> Met:
        met = together([_met(stored, wanted, key) for stored in _stored_keys(table, where, key, indexed)])
        order = np.argsort(met.places)
        return Met(met.places[order], met.row_ids[order], met.addresses[order])

    return table.asked("find_keys", asked)


def _are_few(table: Table, wanted: int, worth: int) -> bool:
    return wanted <= max(_FEW_KEYS, min(_SOME_KEYS, table.native.count_rows() // worth))


def stored_keys(table: Table, fragments: Sequence[int], key: str = "id") -> pa.Table:
    """The keys of some fragments, each with its row id and address."""
    wanted = set(fragments)
    with table.access.call("find_keys", table.uri):
        return table.native.scanner(
            columns=[key],
            fragments=[one for one in table.native.get_fragments() if one.fragment_id in wanted],
            with_row_id=True,
            with_row_address=True,
            scan_in_order=False,
        ).to_table()


def together(parts: Sequence[Met]) -> Met:
    """What all parts met, one after the other."""
    return Met(
        np.concatenate([np.empty(0, np.int64), *(part.places for part in parts)]),
        np.concatenate([np.empty(0, np.uint64), *(part.row_ids for part in parts)]),
        np.concatenate([np.empty(0, np.uint64), *(part.addresses for part in parts)]),
    )


def _named(wanted: pa.Array, key: str) -> str:
    names = ", ".join("'" + name.replace("'", "''") + "'" for name in wanted.to_pylist())
    return f"{key} IN ({names})" if names else "false"


def _stored_keys(table: Table, where: str | None, key: str, indexed: bool) -> Iterator[pa.Table]:
    """Keys with row ids and addresses, many at a time: to look keys up in one go costs as much as in many."""
    scanner = table.native.scanner(
        columns=[key],
        filter=where,
        with_row_id=True,
        with_row_address=True,
        use_scalar_index=indexed,
        scan_in_order=False,
    )
    waiting: list[pa.RecordBatch] = []
    for batch in scanner.to_batches():
        waiting.append(batch)
        if sum(len(one) for one in waiting) >= _KEYS_AT_ONCE:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def _met(stored: pa.Table, wanted: pa.Array, key: str) -> Met:
    places = pc.index_in(stored.column(key), value_set=wanted)
    here = stored.append_column("place", places).filter(pc.is_valid(places))
    return Met(
        here.column("place").to_numpy().astype(np.int64),
        here.column(ROW).to_numpy().astype(np.uint64),
        here.column(ADDRESS).to_numpy().astype(np.uint64),
    )
