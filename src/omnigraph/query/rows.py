"""The rows of one table at one version, numbered; columns stay in memory once they were used.

A position is the place of a row in the table's own order. When a table moved by little, the rows of
the new version are those of the old one with some dead and new ones behind (`Rows.grown`), so that what
is kept for the old positions is good for the new ones too.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.columns import ID
from omnigraph.engine.write.sql import one_of
from omnigraph.query.frame import NO_ROW, Positions
from omnigraph.query.memory import Memory
from omnigraph.query.places import Places, places_of
from omnigraph.storage.delta import Delta
from omnigraph.storage.tables import Table

SMALL = 200_000
"""Columns of tables up to this size are read whole at the first use."""
COLD_SHARE = 64
"""A larger table's column is read whole once one row in so many was wanted."""
_FEW = 64
"""So many ids are looked for in a dictionary, once there is one."""
_FEWER = 4  # times; hashing all ids is slower than looking at all of them, by so much
_MOST_ASKED = 1000
"""So many ids at most are put into one filter."""
_TELLS = 8
"""So often values that ids are the texts of are read off some ids; then off all of them."""
_PASSES = 32
"""After so many passes over a column of ids it is worth to build a dictionary of them."""
_DICTIONARY_ROWS = 4_000_000
_MOST_DEAD = 4  # one row in so many; more and the rows are numbered anew
_FEW_CHANGES = 4096
_ROWS_BYTES = 16 << 10  # of rows without their columns, about: most is the open table
_FORK_BYTES = 128 << 10  # of what Lance keeps for a table of a branch, which shares that with no other

_numberings = itertools.count()
"""Rows that grew are numbered by the way they came; what is kept of them fits no other numbering."""


Identity = tuple[Hashable, ...]
"""Which version of which table, numbered which way: equal ones have the same rows at the same positions."""


@dataclass(frozen=True, slots=True)
class Codes:
    """A column as numbers: equal values have equal codes, in order of first appearance; null is NO_ROW."""

    by_position: NDArray[np.int32]
    values: pa.Array

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return int(self.by_position.nbytes + self.values.nbytes)


@dataclass(frozen=True, slots=True)
class Growth:
    """How the rows of a version came from those of an older one."""

    base: Identity
    base_count: int
    removed: Positions
    """The positions that are dead now and were not before."""
    added: NDArray[np.uint64]
    """The row ids of the positions behind those of the base."""
    alive: NDArray[np.bool_]
    row_ids: NDArray[np.uint64]

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return self.removed.nbytes + self.added.nbytes + self.alive.nbytes + self.row_ids.nbytes


@dataclass(frozen=True, slots=True)
class InIds:
    """The property that ids are the texts of, where they are: what is known of ids is known of it."""

    name: str
    type: pa.DataType


class Rows:
    """One table at one version; safe to share between threads."""

    def __init__(
        self,
        key: str,
        identity: Identity,
        table: Table,
        memory: Memory,
        growth: Growth | None = None,
        in_ids: InIds | None = None,
    ) -> None:
        self.key = key
        self.identity = identity
        self.table = table
        self.in_ids = in_ids
        self.growth = growth
        """What these rows were made from, when they were not numbered anew."""
        self.live_count = table.count()
        """How many rows this version has."""
        self.count = self.live_count if growth is None else len(growth.alive)
        """How many positions there are, dead ones included."""
        self.alive = None if growth is None or self.live_count == self.count else growth.alive
        """Which positions are rows of this version; None when all are."""
        self._memory = memory
        self._lock = threading.RLock()
        self._cold_reads = 0
        self._told = 0
        self._passes = 0

    @property
    def nbytes(self) -> int:
        """Memory taken, without what is kept by name."""
        handle = _ROWS_BYTES + (0 if self.table.branch is None else _FORK_BYTES)
        return handle + (0 if self.growth is None else self.growth.nbytes)

    @cached_property
    def about(self) -> str:
        """Which version of which table, for other processes; nothing where only this one numbers rows so."""
        return "" if self.growth is not None else f"{self.identity[1:]!r} {self.table.signature}"

    def positions(self) -> Positions:
        """All rows of this version; always the same array."""
        return self._memory.get_or_make(self._key("positions"), self._numbered, lambda made: int(made.nbytes))

    def _numbered(self) -> Positions:
        return np.arange(self.count) if self.alive is None else np.flatnonzero(self.alive)

    # --- columns -----------------------------------------------------------------------------------

    def is_hot(self, name: str) -> bool:
        """Whether a column is in memory."""
        return self.known(name) is not None

    def known(self, name: str) -> pa.Array | None:
        """A whole column by position, if it is in memory."""
        return self._memory.get(self._key("column", name))

    def column(self, name: str) -> pa.Array:
        """A whole column by position; the values of dead positions mean nothing."""
        found = self.known(name)
        if found is not None:
            return found
        key = self._key("column", name)
        with self._lock:
            return self._memory.get_or_make(key, lambda: self._loaded(name), lambda read: int(read.nbytes))

    def ids(self) -> pa.Array:
        """The ids by position."""
        return self.column(ID)

    def learn_ids(self, ids: pa.Array) -> None:
        """Take over ids by position that were found elsewhere."""
        self._memory.keep(self._key("column", ID), ids, int(ids.nbytes))

    def take(self, name: str, positions: Positions, *, passing: bool = False) -> pa.Array:
        """The values at these positions; NO_ROW gives null.

        Rows that are `passing`, one stretch of the table after the other, leave nothing in memory.
        """
        if passing and self.count > SMALL and _is_stretch(positions) and not self.is_hot(name):
            return self._taken_cold(name, positions)
        if len(positions) == 1 and positions[0] >= 0 and self._reads_whole(name, 1):
            return self.column(name).slice(int(positions[0]), 1)  # a read by key, without any copying
        if self._is_told_by_ids(name, len(positions)):
            return self._from_ids(self.take(ID, positions))
        missing = positions < 0
        if missing.any():
            index = pa.array(positions, mask=missing)
            return self.column(name).take(index)
        if self._reads_whole(name, len(positions)):
            return self.column(name).take(pa.array(positions))
        return self._taken_cold(name, positions)

    def codes(self, name: str) -> Codes:
        """A column of scalars as numbers."""
        return self._memory.get_or_make(
            self._key("codes", name), lambda: _encoded(self.column(name)), lambda made: made.nbytes
        )

    def _reads_whole(self, name: str, wanted: int) -> bool:
        if self.count <= SMALL or self.is_hot(name):
            return True
        self._cold_reads += wanted
        return self._cold_reads > self.count // COLD_SHARE

    def _taken_cold(self, name: str, positions: Positions) -> pa.Array:
        wanted, back = np.unique(positions, return_inverse=True)
        if self.growth is None:
            found = self.table.take_offsets(wanted, [name])
        else:
            found = self.table.take(pa.array(self.growth.row_ids[wanted]), [name])
        return _whole(found.column(name)).take(pa.array(back))

    def _is_told_by_ids(self, name: str, wanted: int) -> bool:
        """Whether so few values are read off their ids; when they keep being asked for, all of them are."""
        if self._told >= _TELLS or wanted * _FEWER > self.count or not self._is_in_ids(name):
            return False
        self._told = _TELLS if self.is_hot(name) else self._told + 1
        return not self.is_hot(name)

    def _is_in_ids(self, name: str) -> bool:
        return self.in_ids is not None and name == self.in_ids.name and self.is_hot(ID)

    def _from_ids(self, ids: pa.Array) -> pa.Array:
        assert self.in_ids is not None
        return ids if pa.types.is_string(self.in_ids.type) else ids.cast(self.in_ids.type)

    def _loaded(self, name: str) -> pa.Array:
        if self._is_in_ids(name):
            return self._from_ids(self.ids())
        if self.growth is None:
            return _whole(self.table.scan([name]).column(name))
        old: pa.Array | None = self._memory.get((*self.growth.base, "column", name))
        if old is not None:
            return pa.concat_arrays([old, self.added(name)])
        read = self.table.scan([name], row_ids=True)
        places = np.full(self.count, NO_ROW, dtype=np.int64)
        places[self.positions_of(read.column("_rowid").to_numpy())] = np.arange(len(read))
        return _whole(read.column(name)).take(pa.array(places, mask=places < 0))

    def added(self, name: str) -> pa.Array:
        """The values at the positions that came by growing."""
        assert self.growth is not None
        return _whole(self.table.take(pa.array(self.growth.added), [name]).column(name))

    # --- ids and row ids ---------------------------------------------------------------------------

    def find(self, ids: pa.Array) -> Positions:
        """The position of each id; NO_ROW where there is none."""
        if len(ids) <= _FEW:
            return self.find_few(ids.to_pylist())
        if len(ids) <= _MOST_ASKED and not self._reads_whole(ID, len(ids)):
            return self._found_cold(ids)
        return self._looked_up(ids)

    def find_few(self, ids: Sequence[str | None]) -> Positions:
        """The same for ids that are no column."""
        if len(ids) == 0:
            return np.empty(0, dtype=np.int64)
        if len(ids) > _FEW:
            return self.find(pa.array(ids, pa.string()))
        places = self.places()
        if places is None and not self._reads_whole(ID, len(ids)):
            return self._found_cold(pa.array(ids, pa.string()))
        places = places or self._made_places()
        if places is not None:
            return np.array([places.of(each) for each in ids], dtype=np.int64)
        if len(ids) == 1 and ids[0] is not None:
            return np.array([pc.index(self._live_ids(), ids[0]).as_py()], dtype=np.int64)
        return self._looked_up(pa.array(ids, pa.string()))

    def places(self) -> Places | None:
        """Where each id is, once that is in memory for this version or for the one it has grown from."""
        found: Places | None = self._memory.get(self._key("places"))
        if found is not None or self.growth is None:
            return found
        older: Places | None = self._memory.get((*self.growth.base, "places"))
        if older is None:
            return None
        added = self.ids().slice(self.growth.base_count) if self.is_hot(ID) else self.added(ID)
        found = older.grown(added.to_pylist(), self.growth.base_count, self.alive)
        if found is not None:
            self._memory.keep(self._key("places"), found, found.nbytes, goes_with=found.kept_as)
        return found

    def _looked_up(self, ids: pa.Array) -> Positions:
        """Ids looked up in one pass; the fewer of both, these or all, are hashed."""
        held = self._live_ids()
        if len(ids) * _FEWER > len(held):
            found = pc.index_in(ids, value_set=held)
            return np.asarray(found.fill_null(NO_ROW).to_numpy(zero_copy_only=False), dtype=np.int64)
        encoded = ids.dictionary_encode()
        met = pc.index_in(held, value_set=encoded.dictionary)
        positions = np.flatnonzero(met.is_valid().to_numpy(zero_copy_only=False))
        places = np.full(len(encoded.dictionary), NO_ROW, dtype=np.int64)
        places[met.drop_null().to_numpy()] = positions
        return np.asarray(places[encoded.indices.to_numpy()])

    def _found_cold(self, ids: pa.Array) -> Positions:
        """Ids looked up in the table, which has an index on them if it is large and looked after."""
        wanted = ids.unique()
        found = self.table.scan([ID], where=one_of(ID, wanted.to_pylist()), row_ids=True)
        places = pc.index_in(ids, value_set=_whole(found.column(ID))).fill_null(NO_ROW)
        positions = np.append(self.positions_of(found.column("_rowid").to_numpy()), NO_ROW)
        return np.asarray(positions[places.to_numpy(zero_copy_only=False)])

    def _made_places(self) -> Places | None:
        """Where each id is, in a dictionary that is made when it was missed often enough."""
        if self.count > _DICTIONARY_ROWS:
            return None
        self._passes += 1
        if self._passes < _PASSES:
            return None
        with self._lock:
            made = places_of(self._live_ids().to_pylist(), self._key("places"))
            return self._memory.keep(self._key("places"), made, made.nbytes)

    def _live_ids(self) -> pa.Array:
        if self.alive is None:
            return self.ids()
        return self._memory.get_or_make(
            self._key("live", ID),
            lambda: pc.if_else(pa.array(self.alive), self.ids(), None),
            lambda made: int(made.nbytes),
        )

    @property
    def row_ids(self) -> NDArray[np.uint64]:
        """The stable row id of each position."""
        if self.growth is not None:
            return self.growth.row_ids
        return self._memory.get_or_make(
            self._key("row ids"),
            lambda: self.table.scan([], row_ids=True).column("_rowid").to_numpy(),
            lambda made: int(made.nbytes),
        )

    def positions_of(self, row_ids: NDArray[np.uint64]) -> Positions:
        """The live position of each row id; NO_ROW where there is none."""
        known, order = self._memory.get_or_make(
            self._key("row id order"), self._sorted_row_ids, lambda made: int(made[0].nbytes + made[1].nbytes)
        )
        if len(known) == 0:
            return np.full(len(row_ids), NO_ROW, dtype=np.int64)
        places = np.minimum(np.searchsorted(known, row_ids), len(known) - 1)
        return np.where(known[places] == row_ids, order[places], NO_ROW)

    def _sorted_row_ids(self) -> tuple[NDArray[np.uint64], Positions]:
        live = self.positions()
        ids = self.row_ids if self.alive is None else self.row_ids[live]
        if (ids[1:] > ids[:-1]).all():
            return ids, live  # as it is in a table whose rows were never changed
        order = np.argsort(ids, kind="stable")
        return ids[order], live[order]

    # --- moving on ---------------------------------------------------------------------------------

    def grown(self, identity: Identity, table: Table) -> Rows | None:
        """These rows as a later version of the same branch has them; None when too much changed."""
        # Asked first, because a delta reads whole rows.
        if abs(table.count() - self.live_count) * _MOST_DEAD > self.live_count + _FEW_CHANGES:
            return None
        delta = Delta(self.table, table)
        updated = _row_ids(delta.updated())
        added = np.concatenate([updated, _row_ids(delta.inserted())])
        gone = np.concatenate([updated, delta.deleted_row_ids().to_numpy()])
        places = self.positions_of(gone)
        removed = places[places >= 0]
        alive = np.ones(self.count + len(added), dtype=np.bool_)
        if self.alive is not None:
            alive[: self.count] = self.alive
        alive[removed] = False
        live = int(alive.sum())
        # Whatever the delta could not tell shows in the number of rows.
        if len(alive) - live > len(alive) // _MOST_DEAD or live != table.count():
            return None
        row_ids = np.concatenate([self.row_ids, added])
        growth = Growth(self.identity, self.count, removed, added, alive, row_ids)
        numbered = (*identity, next(_numberings))
        return Rows(self.key, numbered, table, self._memory, growth, self.in_ids)

    def _key(self, *what: str) -> Hashable:
        return (*self.identity, *what)


def _row_ids(rows: pa.Table) -> NDArray[np.uint64]:
    return np.asarray(rows.column("_rowid").to_numpy(), dtype=np.uint64)


def _is_stretch(positions: Positions) -> bool:
    """Whether these are positions one behind the other."""
    if len(positions) == 0 or positions[-1] - positions[0] != len(positions) - 1:
        return False
    return bool((np.diff(positions) == 1).all())


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """One array of a column; texts beyond 2 GB need the wider type."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_string(column.type) and column.nbytes > 2**31 - 1:
        column = column.cast(pa.large_string())
    return column.combine_chunks()


def _encoded(column: pa.Array) -> Codes:
    encoded = column.dictionary_encode()
    codes = encoded.indices.fill_null(NO_ROW).to_numpy(zero_copy_only=False).astype(np.int32)
    return Codes(codes, encoded.dictionary)
