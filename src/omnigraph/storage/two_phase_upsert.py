"""Upsert rows in two versions of a table, so that no commit reads the row ids of the whole table.

A replaced row keeps its row id and the version it was created in. Given only the row ids, Lance's commit
searches all row ids of the table for these versions. So the first version appends the new rows. The second
one assigns the row ids and versions of the replaced rows to the new fragment, and deletes the replaced rows.
The version between is never published; it holds both.

This writes two more files than one version would: the extra version and its transaction. One version would
suffice if a small fragment were rewritten under its number, but Lance assumes that a fragment number means
the same rows in all versions, and then reports deleted rows wrongly.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceOperation as Op
from lance.fragment import FragmentMetadata, RowDatasetVersionMeta, RowIdSequence

from omnigraph.storage.staging import Staged, build_fenced_update
from omnigraph.storage.tables import Table

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
    runs = (_run(start, end, int(versions[start])) for start, end in zip(starts, ends, strict=True))
    return RowDatasetVersionMeta.from_json(json.dumps({"inline": list(b"".join(runs))}))


def _run(start: int, end: int, version: int) -> bytes:
    rows = _message(1, _message(1, _number(1, start) + _number(2, end)))
    return _message(1, rows + _number(2, version))


def _message(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | _LENGTH) + _varint(len(body)) + body


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _NUMBER) + _varint(value) if value else b""


def _varint(value: int) -> bytes:
    digits = []
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])
