"""Rows that replace others in two versions of their table, so that no commit looks at all the others.

A replaced row keeps its row id and the version it was made in. Told only the row ids, Lance's commit looks
for these versions itself, among the row ids of all rows there are. So the new rows are first added like any
other rows. Then their fragment is given the row ids and versions of the rows they replace, and those go. In
the version between, which nobody publishes, both are there.

That puts two files more than one version would: the other version, and its transaction. One version would do
with the rows in a small fragment that is written again under its number, but Lance takes fragments of one
number for the same in all versions, and then tells deleted rows wrongly.
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

from omnigraph.storage.staging import Staged, fenced_update
from omnigraph.storage.tables import Table

Numbers = npt.NDArray[np.uint64]

_LENGTH, _NUMBER = 2, 0
"""How a field of a protobuf message is written: as bytes with their length, or as a number."""


def stage_takeover(
    landed: Table, before: Table, row_ids: Numbers, created: Numbers, losing: Op.Update
) -> Staged:
    """The second version: the first of the rows that were added since `before` take these row ids over.

    `created` are the versions that the rows with these ids were made in, `losing` the fragments that lose
    them.
    """
    with landed.access.call("stage_takeover", landed.uri):
        known = {one.fragment_id for one in before.native.get_fragments()}
        added = [one.metadata for one in landed.native.get_fragments() if one.fragment_id not in known]
        added.sort(key=lambda fragment: fragment.id)
        heirs = _heirs(added, row_ids, created, landed.version)
        operation = replace(losing, updated_fragments=[*losing.updated_fragments, *heirs])
        return Staged(landed, fenced_update(landed, operation))


def _heirs(
    added: Sequence[FragmentMetadata], row_ids: Numbers, created: Numbers, version: int
) -> list[FragmentMetadata]:
    """The fragments whose first rows have a row id to take over, with all they are to be described by."""
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
            fragment.created_at_version_meta = versions_of_rows(made)
            fragment.last_updated_at_version_meta = versions_of_rows(np.full(rows, version + 1, np.uint64))
            found.append(fragment)
    return found


def versions_of_rows(versions: Numbers) -> RowDatasetVersionMeta:
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
