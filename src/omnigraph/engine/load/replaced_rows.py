"""Which stored rows the rows of a large change replace, found by tasks before the commit protocol runs.

Ids of the change and of the table meet in buckets. Pieces of which only some rows replace a stored one are
rewritten, those rows first. What comes back are the places of stored rows, some bytes for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.tasks.buckets import MAX_BUCKETS
from omnigraph.engine.tasks.runner import KeyedRows, Runner
from omnigraph.storage.fragments import group_by_rows, list_fragments
from omnigraph.storage.pieces import Piece, PieceMatches, Pieces, read_piece, sort_piece
from omnigraph.storage.tables import Table
from omnigraph.storage.upsert import ADDRESS, ROW, MatchedRows, read_keys

WORTH = 1_000_000
"""From so many rows on it is done by tasks; fewer are looked up during the commit, where that is cheap."""

_ROWS_PER_BUCKET, _ROWS_PER_TASK = 1 << 20, 4 << 20
_NEW, _OLD, _POSITION = "new", "old", "position"


class GraphReference(Protocol):
    """A change that travels to tasks, and knows the graph there."""

    @property
    def root(self) -> Root:
        """The graph, as the process that runs a task reaches it."""
        ...


@dataclass(frozen=True, slots=True)
class _New:
    """A piece and its number."""

    number: int
    piece: Piece


@dataclass(frozen=True, slots=True)
class _Old:
    """Some of the stored rows."""

    fragments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Job:
    """What the tasks have in common."""

    home: GraphReference
    pieces: Pieces = field(repr=False)
    """Without the pieces themselves: a task gets its own."""
    entry: TableEntry

    def table(self) -> Table:
        root, entry = self.home.root, self.entry
        return root.tables.open(root.layout.table(entry.path), entry.version, branch=entry.owner)

    def one(self, piece: Piece) -> Pieces:
        return Pieces(self.pieces.place, self.pieces.schema, (piece,))


def match_pieces(runner: Runner, home: GraphReference, pieces: Pieces, entry: TableEntry) -> Pieces:
    """The same rows, with the stored rows that they replace; few rows are left as they are."""
    if pieces.rows < WORTH:
        return pieces
    job = _Job(home, Pieces(pieces.place, pieces.schema, ()), entry)
    found = _match_rows(runner, job, pieces, entry)
    scattered = [
        (number, pieces.pieces[number], met)
        for number, met in enumerate(found)
        if len(met) not in (0, pieces.pieces[number].rows)
    ]
    written = dict(runner.each("arrange", scattered, partial(_arrange_piece, job)))
    arranged = tuple(written.get(number, piece) for number, piece in enumerate(pieces.pieces))
    return Pieces(pieces.place, pieces.schema, arranged, PieceMatches(entry.version, tuple(found)))


def _match_rows(runner: Runner, job: _Job, pieces: Pieces, entry: TableEntry) -> list[MatchedRows]:
    """The stored rows that each piece replaces."""
    items: list[_New | _Old] = [_New(number, piece) for number, piece in enumerate(pieces.pieces)]
    items += _list_stored(job.table())
    rows = pieces.rows + (entry.row_count or 0)
    buckets = min(MAX_BUCKETS, max(runner.cores, -(-rows // _ROWS_PER_BUCKET)))
    answers = runner.grouped("match", items, partial(_emit_ids, job), _join_matches, buckets, streamed=True)
    met = pa.concat_tables([_REPLACED_SCHEMA.empty_table(), *answers]).sort_by(_POSITION)
    positions, row_ids, addresses = (met.column(name).to_numpy() for name in _REPLACED_SCHEMA.names)
    ends = np.searchsorted(positions, np.arange(len(pieces.pieces) + 1) << 32)
    return [
        MatchedRows(positions[low:high] & 0xFFFFFFFF, row_ids[low:high], addresses[low:high])
        for low, high in pairwise(ends.tolist())
    ]


def _list_stored(table: Table) -> Iterator[_Old]:
    for some in group_by_rows(list_fragments(table), _ROWS_PER_TASK):
        yield _Old(tuple(one.id for one in some))


# --- in the tasks --------------------------------------------------------------------------------

_REPLACED_SCHEMA = pa.schema([(_POSITION, pa.int64()), (ROW, pa.uint64()), (ADDRESS, pa.uint64())])


def _emit_ids(job: _Job, item: _New | _Old) -> Iterator[KeyedRows]:
    if isinstance(item, _Old):
        yield KeyedRows(_OLD, read_keys(job.table(), item.fragments), ID)
        return
    access, first = job.home.root.tables.access, item.number << 32
    for batch in read_piece(access, job.pieces.place, item.piece, [ID]):
        positions = first + np.arange(batch.num_rows, dtype=np.int64)
        first += batch.num_rows
        yield KeyedRows(_NEW, pa.table({ID: batch.column(0), _POSITION: positions}), ID)


def _join_matches(rows: Mapping[str, pa.Table]) -> pa.Table:
    if _NEW not in rows or _OLD not in rows:
        return _REPLACED_SCHEMA.empty_table()
    return (
        rows[_NEW]
        .join(rows[_OLD], ID, join_type="inner")
        .select(_REPLACED_SCHEMA.names)
        .cast(_REPLACED_SCHEMA)
    )


def _arrange_piece(job: _Job, one: tuple[int, Piece, MatchedRows]) -> tuple[int, Piece]:
    number, piece, met = one
    return number, sort_piece(job.home.root.tables.access, job.one(piece), _met_first(met, piece.rows))


def _met_first(met: MatchedRows, rows: int) -> NDArray[np.int64]:
    others = np.ones(rows, np.bool_)
    others[met.places] = False
    return np.concatenate([met.places, np.flatnonzero(others)])
