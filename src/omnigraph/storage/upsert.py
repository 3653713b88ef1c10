"""Upsert: replace the stored rows with the same key, and add the rows whose key is new.

Lance's own merge collects all new rows in a memory pool of fixed size, and fails where they do not fit. Here
only keys are collected: the stored rows with these keys are found, the new ones written with the row ids of
those they replace, and the old ones marked as deleted at their addresses. A caller that knows the row ids
saves the key lookup, which is most of the cost of a small change of a large table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceOperation as Op
from lance.fragment import FragmentMetadata, RowDatasetVersionMeta, RowIdSequence, write_fragments

from omnigraph.deferred_dataclass import dataclass
from omnigraph.storage.delta import CREATED_AT
from omnigraph.storage.durability import require_complete_files
from omnigraph.storage.staging import (
    Counts,
    Staged,
    build_fenced_update,
    refuse_duplicates,
    stage_append,
    write_options,
)
from omnigraph.storage.tables import Rows, Table, to_stored_types

Numbers = npt.NDArray[np.uint64]

_LENGTH, _NUMBER = 2, 0
"""How a field of a protobuf message is written: as bytes with their length, or as a number."""


def stage_second_phase(
    landed: Table, before: Table, row_ids: Numbers, created: Numbers, losing: Op.Update
) -> Staged:
    """Stage the second version: the first rows that were added since `before` get these row ids.

    `created` are the versions in which the rows with these ids were created, `losing` the fragments that
    lose them.
    """
    with landed.access.call("stage_takeover", landed.uri):
        known = {one.fragment_id for one in before.native.get_fragments()}
        added = [one.metadata for one in landed.native.get_fragments() if one.fragment_id not in known]
        added.sort(key=lambda fragment: fragment.id)
        successors = _assign_row_ids(added, row_ids, created, landed.version)
        operation = replace(losing, updated_fragments=[*losing.updated_fragments, *successors])
        return Staged(landed, build_fenced_update(landed, operation))


def _assign_row_ids(
    added: Sequence[FragmentMetadata], row_ids: Numbers, created: Numbers, version: int
) -> list[FragmentMetadata]:
    """Return the fragments whose first rows replace others, with the row ids and versions of those."""
    found = []
    for fragment in added:
        rows = fragment.physical_rows
        ids, row_ids = row_ids[:rows], row_ids[rows:]
        made, created = created[:rows], created[rows:]
        if len(ids):
            assert fragment.row_id_meta is not None
            own = np.asarray(RowIdSequence.from_inline_metadata(fragment.row_id_meta).to_pyarrow())
            ids = np.concatenate([ids, own[len(ids) :]])
            made = np.concatenate([made, np.full(rows - len(made), version, np.uint64)])
            fragment.row_id_meta = RowIdSequence(pa.array(ids, pa.uint64())).to_inline_metadata()
            fragment.created_at_version_meta = encode_row_versions(made)
            fragment.last_updated_at_version_meta = encode_row_versions(np.full(rows, version + 1, np.uint64))
            found.append(fragment)
    return found


def encode_row_versions(versions: Numbers) -> RowDatasetVersionMeta:
    """A version for each row of a fragment, as Lance stores them: in runs, each with its first and last row.

    Lance's Python package has no other way to make them than from what it stores.
    """
    cuts = np.flatnonzero(np.diff(versions)) + 1
    starts, ends = [0, *cuts.tolist()], [*cuts.tolist(), len(versions)]
    runs = (_encode_run(start, end, int(versions[start])) for start, end in zip(starts, ends, strict=True))
    return RowDatasetVersionMeta.from_json(json.dumps({"inline": list(b"".join(runs))}))


def _encode_run(start: int, end: int, version: int) -> bytes:
    rows = _encode_message(1, _encode_message(1, _encode_number(1, start) + _encode_number(2, end)))
    return _encode_message(1, rows + _encode_number(2, version))


def _encode_message(field: int, body: bytes) -> bytes:
    return _encode_varint(field << 3 | _LENGTH) + _encode_varint(len(body)) + body


def _encode_number(field: int, value: int) -> bytes:
    return _encode_varint(field << 3 | _NUMBER) + _encode_varint(value) if value else b""


def _encode_varint(value: int) -> bytes:
    digits = []
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


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


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """The stored rows that have keys of the change."""

    places: npt.NDArray[np.int64]
    """Where in the change the key is, ascending."""
    row_ids: Numbers
    addresses: Numbers
    created: Numbers | None = None
    """The versions in which the rows were created, where requested."""

    def slice(self, start: int, end: int) -> MatchedRows:
        """Return the matches of a range of the change, counted from its start."""
        low, high = np.searchsorted(self.places, (start, end))
        return MatchedRows(self.places[low:high] - start, self.row_ids[low:high], self.addresses[low:high])

    def __len__(self) -> int:
        return len(self.places)


@dataclass(frozen=True, slots=True)
class UpsertPlan:
    """Rows to be stored, and the stored rows they replace; it is also valid for a fork of the table."""

    rows: pa.Table = field(repr=False)
    """Rows that replace a stored row come first."""
    matched: MatchedRows

    @property
    def takes_two_versions(self) -> bool:
        """Whether the change takes two versions."""
        return self.matched.created is not None and len(self.matched) > 0


def stage_upsert(
    table: Table,
    rows: pa.Table,
    key: str = "id",
    *,
    replaced: pa.Array | None = None,
    allow_two_versions: bool = False,
) -> Staged:
    """Stage rows to be added, or to replace the stored row with the same key, which keeps its row id.

    `replaced` are the row ids of these stored rows, null for a row that is added; where one of them is not
    stored, all keys are looked up. `allow_two_versions` allows the change to take two versions.
    """
    return stage_planned_upsert(
        table, plan_upsert(table, rows, key, replaced=replaced, allow_two_versions=allow_two_versions)
    )


def plan_upsert(
    table: Table,
    rows: pa.Table,
    key: str = "id",
    *,
    replaced: pa.Array | None = None,
    allow_two_versions: bool = False,
) -> UpsertPlan:
    """Look up the rows that an upsert replaces; nothing is written yet."""
    keys = rows.column(key)
    refuse_duplicates(table, keys, "stage_upsert")
    allow_two_versions = (
        allow_two_versions and _is_large(table) and _are_few(table, rows.num_rows, _ROWS_WORTH)
    )
    met = None if replaced is None else find_rows(table, replaced, created=allow_two_versions)
    if met is None:
        met = find_keys(table, keys, key)
        if allow_two_versions and len(met):
            met = replace(met, created=_read_created_versions(table, met))
    return UpsertPlan(_order_matches_first(rows, met), met)


def stage_planned_upsert(table: Table, found: UpsertPlan) -> Staged:
    """Write the files of a planned upsert and stage it."""
    with table.access.call("stage_upsert", table.uri):
        if found.takes_two_versions:
            return _stage_two_phases(table, found)
        written = write_replacements(table, found.rows, found.matched)
        return build_upsert(table, written, found.matched, found.rows.num_rows)


def _is_large(table: Table) -> bool:
    """Whether an extra commit costs less than one that reads all row ids; in a bucket it never does."""
    native = table.native
    return table.location.is_local and table.has_stable_row_ids and bool(native.count_rows() >= _LARGE)


def _read_created_versions(table: Table, met: MatchedRows) -> Numbers | None:
    found = find_rows(table, pa.array(met.row_ids, pa.uint64()), created=True)
    return None if found is None else found.created


def _stage_two_phases(table: Table, found: UpsertPlan) -> Staged:
    """Stage an append, to be followed by a version in which the new rows replace the old ones."""
    met, created = found.matched, found.matched.created
    assert created is not None
    added, losing = stage_append(table, found.rows), _build_deletions(table, met)
    return replace(
        added,
        counts=Counts(inserted=found.rows.num_rows - len(met), updated=len(met)),
        second_phase=lambda landed: stage_second_phase(landed, table, met.row_ids, created, losing),
    )


def _order_matches_first(rows: pa.Table, met: MatchedRows) -> pa.Table:
    if len(met) in (0, rows.num_rows) and _is_ascending(met, rows.num_rows):
        return rows
    others = np.ones(rows.num_rows, dtype=bool)
    others[met.places] = False
    return rows.take(np.concatenate([met.places, np.flatnonzero(others)]))


def _is_ascending(met: MatchedRows, rows: int) -> bool:
    return not len(met) or bool((met.places == np.arange(rows)).all())


def write_replacements(table: Table, rows: Rows, met: MatchedRows) -> list[FragmentMetadata]:
    """Write files of rows, of which the first ones replace stored rows."""
    fragments: list[FragmentMetadata] = write_fragments(
        to_stored_types(rows, table), table.native, mode="append", **write_options(table)
    )
    return assign_row_ids(fragments, met)


def assign_row_ids(fragments: Sequence[FragmentMetadata], met: MatchedRows) -> list[FragmentMetadata]:
    """Give the first rows of the files the row ids of the stored rows they replace."""
    left = met.row_ids
    for fragment in fragments:
        own, left = left[: fragment.physical_rows], left[fragment.physical_rows :]
        if len(own):
            # Lance gives new ids to the rows behind those that have one.
            fragment.row_id_meta = RowIdSequence(pa.array(own, pa.uint64())).to_inline_metadata()
    return list(fragments)


def build_upsert(table: Table, written: Sequence[FragmentMetadata], met: MatchedRows, rows: int) -> Staged:
    """Return the staged change that replaces the matched rows by the written files."""
    operation = replace(_build_deletions(table, met), new_fragments=list(written))
    require_complete_files("stage_upsert", table.location, table.uri, operation)
    counts = Counts(inserted=rows - len(met), updated=len(met))
    return Staged(table, build_fenced_update(table, operation), counts)


def _build_deletions(table: Table, met: MatchedRows) -> Op.Update:
    """Return an update that deletes the matched rows from their fragments."""
    kept, emptied = _delete_addresses(table, met.addresses)
    return Op.Update(
        removed_fragment_ids=emptied,
        updated_fragments=kept,
        new_fragments=[],
        update_mode="rewrite_rows",
        # All columns of the rows are new, so no index may take their fragments for covered.
        fields_for_preserving_frag_bitmap=[column.id() for column in table.native.lance_schema.fields()],
    )


def _delete_addresses(table: Table, addresses: Numbers) -> tuple[list[Any], list[int]]:
    """Delete rows by address; return the fragments that keep rows, and the ids of those that keep none."""
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


def find_rows(table: Table, row_ids: pa.Array, *, created: bool = False) -> MatchedRows | None:
    """Return the stored rows with these row ids, ignoring nulls; None when one of them is not stored.

    The description of a fragment has the addresses and versions of its rows: no column is read.
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
    return MatchedRows(
        np.flatnonzero(row_ids.is_valid().to_numpy(zero_copy_only=False)),
        wanted.to_numpy(zero_copy_only=False).astype(np.uint64),
        stored.column(ADDRESS).take(at).to_numpy().astype(np.uint64),
        stored.column(CREATED_AT).take(at).to_numpy().astype(np.uint64) if created else None,
    )


def find_keys(table: Table, keys: pa.ChunkedArray, key: str = "id") -> MatchedRows:
    """Return the stored rows with these keys, which are distinct."""
    wanted = pa.chunked_array(keys).combine_chunks()
    where = _key_filter(wanted, key) if _are_few(table, len(wanted), _WORTH) else None

    def asked(indexed: bool) -> MatchedRows:
        met = concat_matches(
            [_match_keys(stored, wanted, key) for stored in _scan_keys(table, where, key, indexed)]
        )
        order = np.argsort(met.places)
        return MatchedRows(met.places[order], met.row_ids[order], met.addresses[order])

    return table.run_with_indexes("find_keys", asked)


def _are_few(table: Table, wanted: int, worth: int) -> bool:
    return wanted <= max(_FEW_KEYS, min(_SOME_KEYS, table.native.count_rows() // worth))


def read_keys(table: Table, fragments: Sequence[int], key: str = "id") -> pa.Table:
    """Return the keys of some fragments, each with its row id and address."""
    wanted = set(fragments)
    with table.access.call("find_keys", table.uri):
        return table.native.scanner(
            columns=[key],
            fragments=[one for one in table.native.get_fragments() if one.fragment_id in wanted],
            with_row_id=True,
            with_row_address=True,
            scan_in_order=False,
        ).to_table()


def concat_matches(parts: Sequence[MatchedRows]) -> MatchedRows:
    """Concatenate the matches of all parts."""
    return MatchedRows(
        np.concatenate([np.empty(0, np.int64), *(part.places for part in parts)]),
        np.concatenate([np.empty(0, np.uint64), *(part.row_ids for part in parts)]),
        np.concatenate([np.empty(0, np.uint64), *(part.addresses for part in parts)]),
    )


def _key_filter(wanted: pa.Array, key: str) -> str:
    names = ", ".join("'" + name.replace("'", "''") + "'" for name in wanted.to_pylist())
    return f"{key} IN ({names})" if names else "false"


def _scan_keys(table: Table, where: str | None, key: str, indexed: bool) -> Iterator[pa.Table]:
    """Yield keys with row ids and addresses in large batches: each lookup has a fixed cost."""
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


def _match_keys(stored: pa.Table, wanted: pa.Array, key: str) -> MatchedRows:
    places = pc.index_in(stored.column(key), value_set=wanted)
    here = stored.append_column("place", places).filter(pc.is_valid(places))
    return MatchedRows(
        here.column("place").to_numpy().astype(np.int64),
        here.column(ROW).to_numpy().astype(np.uint64),
        here.column(ADDRESS).to_numpy().astype(np.uint64),
    )
