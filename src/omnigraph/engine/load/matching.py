"""Which stored rows the rows of a large change replace, found by tasks before the change reaches its door.

Ids of the change and of the table meet in buckets. Pieces of which only some rows replace a stored one are
written once more, those rows first. What comes back are the places of stored rows, some bytes for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.columns import ID
from omnigraph.engine.load.buckets import MOST
from omnigraph.engine.load.runner import Keyed, Runner
from omnigraph.engine.manifest import Entry
from omnigraph.engine.root import Root
from omnigraph.storage.fragments import fragments, portions
from omnigraph.storage.pieces import Matched, Piece, Pieces, read_piece, sorted_piece
from omnigraph.storage.tables import Table
from omnigraph.storage.upserting import ADDRESS, ROW, Met, stored_keys

WORTH = 1_000_000
"""From so many rows on it is done by tasks; fewer are looked up at the door, where that costs little."""

_ROWS_PER_BUCKET, _ROWS_PER_TASK = 1 << 20, 4 << 20
_NEW, _OLD, _POSITION = "new", "old", "position"


class Home(Protocol):
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

    home: Home
    pieces: Pieces = field(repr=False)
    """Without the pieces themselves: a task gets its own."""
    entry: Entry

    def table(self) -> Table:
        root, entry = self.home.root, self.entry
        return root.tables.open(root.layout.table(entry.path), entry.version, branch=entry.owner)

    def one(self, piece: Piece) -> Pieces:
        return Pieces(self.pieces.place, self.pieces.schema, (piece,))


def matched_pieces(runner: Runner, home: Home, pieces: Pieces, entry: Entry) -> Pieces:
    """The same rows, with the stored rows that they replace; few rows are left as they are."""
    if pieces.rows < WORTH:
        return pieces
    job = _Job(home, Pieces(pieces.place, pieces.schema, ()), entry)
    found = _matches(runner, job, pieces, entry)
    scattered = [
        (number, pieces.pieces[number], met)
        for number, met in enumerate(found)
        if len(met) not in (0, pieces.pieces[number].rows)
    ]
    written = dict(runner.each("arrange", scattered, partial(_arranged, job)))
    arranged = tuple(written.get(number, piece) for number, piece in enumerate(pieces.pieces))
    return Pieces(pieces.place, pieces.schema, arranged, Matched(entry.version, tuple(found)))


def _matches(runner: Runner, job: _Job, pieces: Pieces, entry: Entry) -> list[Met]:
    """The stored rows that each piece replaces."""
    items: list[_New | _Old] = [_New(number, piece) for number, piece in enumerate(pieces.pieces)]
    items += _old(job.table())
    rows = pieces.rows + (entry.row_count or 0)
    buckets = min(MOST, max(runner.cores, -(-rows // _ROWS_PER_BUCKET)))
    answers = runner.grouped("match", items, partial(_emit, job), _met, buckets, streamed=True)
    met = pa.concat_tables([_NOBODY.empty_table(), *answers]).sort_by(_POSITION)
    positions, row_ids, addresses = (met.column(name).to_numpy() for name in _NOBODY.names)
    ends = np.searchsorted(positions, np.arange(len(pieces.pieces) + 1) << 32)
    return [
        Met(positions[low:high] & 0xFFFFFFFF, row_ids[low:high], addresses[low:high])
        for low, high in pairwise(ends.tolist())
    ]


def _old(table: Table) -> Iterator[_Old]:
    for some in portions(fragments(table), _ROWS_PER_TASK):
        yield _Old(tuple(one.id for one in some))


# --- in the tasks --------------------------------------------------------------------------------

_NOBODY = pa.schema([(_POSITION, pa.int64()), (ROW, pa.uint64()), (ADDRESS, pa.uint64())])


def _emit(job: _Job, item: _New | _Old) -> Iterator[Keyed]:
    if isinstance(item, _Old):
        yield Keyed(_OLD, stored_keys(job.table(), item.fragments), ID)
        return
    access, first = job.home.root.tables.access, item.number << 32
    for batch in read_piece(access, job.pieces.place, item.piece, [ID]):
        positions = first + np.arange(batch.num_rows, dtype=np.int64)
        first += batch.num_rows
        yield Keyed(_NEW, pa.table({ID: batch.column(0), _POSITION: positions}), ID)


def _met(rows: Mapping[str, pa.Table]) -> pa.Table:
    if _NEW not in rows or _OLD not in rows:
        return _NOBODY.empty_table()
    return rows[_NEW].join(rows[_OLD], ID, join_type="inner").select(_NOBODY.names).cast(_NOBODY)


def _arranged(job: _Job, one: tuple[int, Piece, Met]) -> tuple[int, Piece]:
    number, piece, met = one
    return number, sorted_piece(job.home.root.tables.access, job.one(piece), _met_first(met, piece.rows))


def _met_first(met: Met, rows: int) -> NDArray[np.int64]:
    others = np.ones(rows, np.bool_)
    others[met.places] = False
    return np.concatenate([met.places, np.flatnonzero(others)])
