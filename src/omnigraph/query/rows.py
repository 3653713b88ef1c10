"""The numbered rows of one table version; columns stay in memory once they were used.

A position is the place of a row in the table's own order. After a small change, the rows of the new version
are those of the old one with some dead and new ones appended (`Rows.grow`), so that what is cached for the
old positions stays valid.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.rows.predicate import one_of
from omnigraph.query.frame import NO_ROW, Positions
from omnigraph.query.interrupt import run_in_worker
from omnigraph.query.read_cache import ReadCache
from omnigraph.query.row_growth import (
    GrowingColumn,
    Growth,
    IdPositions,
    RowNumbers,
    index_ids,
    is_among,
    needs_rebuild,
)
from omnigraph.storage.delta import CREATED_AT, Delta
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
_MAX_DERIVED_READS = 8
"""How often values of the id property are derived from some ids, before all of them are."""
_PASSES = 32
"""After so many scans of the ids it pays to build a dictionary of them."""
_DICTIONARY_ROWS = 4_000_000
_MOST_DEAD = 4  # one row in so many; with more the rows are renumbered
_FEW_CHANGES = 4096
_ROWS_BYTES = 16 << 10  # of rows without their columns, about: most is the open table
_ROW_BYTES = 256  # of a few values, beside them
_MOST_BEFORE = 64
"""So many versions are looked through for something to grow that not every read asks for."""
_NOWHERE: Positions = np.empty(0, dtype=np.int64)
_FORK_BYTES = 128 << 10  # of what Lance keeps for a table of a branch, which shares that with no other

_numberings = itertools.count()
"""Numbers for ways rows grew; what is cached for one numbering fits no other."""


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
class IdProperty:
    """The property whose values, as text, are the ids of a table: its values can be derived from ids."""

    name: str
    type: pa.DataType


class Rows:
    """One table at one version; safe to share between threads."""

    def __init__(
        self,
        key: str,
        identity: Identity,
        table: Table,
        memory: ReadCache,
        growth: Growth | None = None,
        id_property: IdProperty | None = None,
    ) -> None:
        self.key = key
        self.identity = identity
        self.table = table
        self.id_property = id_property
        self.growth = growth
        """How these rows came from those of an older version; None when they were numbered from scratch."""
        self.live_count = table.count()
        """How many rows this version has."""
        self.count = self.live_count if growth is None else len(growth.numbers)
        """How many positions there are, dead ones included."""
        self._memory = memory
        self._lock = threading.RLock()
        self._cold_reads = 0
        self._derived_reads = 0
        self._passes = 0

    @property
    def nbytes(self) -> int:
        """Memory taken, without what is kept by name."""
        handle = _ROWS_BYTES + (0 if self.table.branch is None else _FORK_BYTES)
        return handle + (0 if self.growth is None else self.growth.nbytes)

    @property
    def depends_on(self) -> Hashable | None:
        """The cache key of what these rows keep alive: the row numbers of the version they grew from."""
        return None if self.growth is None else self.growth.numbers.kept_as

    @cached_property
    def about(self) -> str:
        """Which version of which table, for other processes; nothing where only this one numbers rows so."""
        return "" if self.growth is not None else f"{self.identity[1:]!r} {self.table.signature}"

    @property
    def has_dead(self) -> bool:
        """Whether there are positions that are no rows of this version."""
        return self.live_count < self.count

    @property
    def alive(self) -> NDArray[np.bool_] | None:
        """Which positions are rows of this version; None when all are."""
        if not self.has_dead:
            return None
        return self._memory.get_or_make(
            self._cache_key("alive"), self._make_alive_mask, lambda made: int(made.nbytes)
        )

    def _make_alive_mask(self) -> NDArray[np.bool_]:
        alive = np.ones(self.count, dtype=np.bool_)
        alive[self._dead] = False
        return alive

    @property
    def _dead(self) -> Positions:
        return _NOWHERE if self.growth is None else self.growth.dead

    def positions(self) -> Positions:
        """All rows of this version; always the same array."""
        return self._memory.get_or_make(
            self._cache_key("positions"), self._number_rows, lambda made: int(made.nbytes)
        )

    def are_all(self, positions: Positions) -> bool:
        """Whether this is the array that `positions` returns, without dead positions."""
        return len(positions) == self.count and not self.has_dead and positions is self.positions()

    def _number_rows(self) -> Positions:
        alive = self.alive
        return np.arange(self.count) if alive is None else np.flatnonzero(alive)

    # --- columns -----------------------------------------------------------------------------------

    def is_cached(self, name: str) -> bool:
        """Whether a column is in memory."""
        return self.cached_column(name) is not None

    def cached_column(self, name: str) -> GrowingColumn | None:
        """Return a column by position, if it is cached for this version or the one it grew from."""
        key = self._cache_key("column", name)
        found: pa.Array | None = self._memory.get(key)
        if found is not None:
            return GrowingColumn(found, key)
        return None if self.growth is None else self._cached_growth(name, self.growth)

    def _cached_growth(self, name: str, growth: Growth) -> GrowingColumn | None:
        key = self._cache_key("pieces", name)
        found: GrowingColumn | None = self._memory.get(key)
        if found is not None:
            return found
        older = _cached_column_of(self._memory, growth.base, name)
        if older is None:
            return None
        found = older.grow(self.added(name))
        if found is None:  # enough was added to rebuild the column, and later values are added to that
            return GrowingColumn(self.column(name), self._cache_key("column", name))
        return self._memory.keep(key, found, found.later_nbytes + _ROW_BYTES, depends_on=found.kept_as)

    def column(self, name: str) -> pa.Array:
        """A whole column by position; the values of dead positions mean nothing."""
        found: pa.Array | None = self._memory.get(self._cache_key("column", name))
        if found is not None:
            return found
        return run_in_worker(self.count, lambda: self._load_column_once(name))

    def _load_column_once(self, name: str) -> pa.Array:
        key = self._cache_key("column", name)
        with self._lock:
            return self._memory.get_or_make(
                key, lambda: self._load_column(name), lambda read: int(read.nbytes)
            )

    def values_from(self, name: str, start: int) -> pa.Array:
        """The values of a column at a position and behind it; what comes before is not copied."""
        held = self.cached_column(name)
        return self.column(name).slice(start) if held is None else held.values_from(start)

    def ids(self) -> pa.Array:
        """The ids by position."""
        return self.column(ID)

    def learn_ids(self, ids: pa.Array) -> None:
        """Cache ids by position that were read from a topology file."""
        self._memory.keep(self._cache_key("column", ID), ids, int(ids.nbytes))

    def take(self, name: str, positions: Positions, *, streaming: bool = False) -> pa.Array:
        """The values at these positions; NO_ROW gives null.

        With `streaming`, consecutive rows are read without caching the column.
        """
        if streaming and self.count > SMALL and _is_consecutive(positions) and not self.is_cached(name):
            return self._read_range(name, positions)
        if len(positions) == 1 and positions[0] >= 0 and self._reads_whole(name, 1):
            return self._cached_or_loaded(name).cell(int(positions[0]))  # a read by key, without any copying
        if self._derives_from_ids(name, len(positions)):
            return self._from_ids(self.take(ID, positions))
        missing = positions < 0
        if missing.any():
            index = pa.array(positions, mask=missing)
            return self.column(name).take(index)
        if self._reads_whole(name, len(positions)):
            return self._cached_or_loaded(name).take(positions)
        return self._read_values(name, positions)

    def _cached_or_loaded(self, name: str) -> GrowingColumn:
        """A column in memory, read whole if it was not there."""
        return self.cached_column(name) or GrowingColumn(self.column(name), self._cache_key("column", name))

    def codes(self, name: str) -> Codes:
        """A column of scalars as numbers."""
        return self._memory.get_or_make(
            self._cache_key("codes", name),
            lambda: run_in_worker(self.count, lambda: _encode_column(self.column(name))),
            lambda made: made.nbytes,
        )

    def _reads_whole(self, name: str, wanted: int) -> bool:
        if self.count <= SMALL or self.is_cached(name):
            return True
        self._cold_reads += wanted
        return self._cold_reads > self.count // COLD_SHARE

    def _read_range(self, name: str, positions: Positions) -> pa.Array:
        """The values at consecutive positions."""
        if self.growth is not None:
            return self._read_values(name, positions)
        first, last = int(positions[0]), int(positions[-1])
        return run_in_worker(
            len(positions), lambda: _to_array(self.table.take_range(first, last + 1, [name]).column(name))
        )

    def _read_values(self, name: str, positions: Positions) -> pa.Array:
        return run_in_worker(len(positions) * COLD_SHARE, lambda: self._fetch_values(name, positions))

    def _fetch_values(self, name: str, positions: Positions) -> pa.Array:
        wanted, back = np.unique(positions, return_inverse=True)
        if self.growth is None:
            found = self.table.take_offsets(wanted, [name])
        else:
            found = self.table.take(pa.array(self.growth.numbers.at(wanted)), [name])
        return _to_array(found.column(name)).take(pa.array(back))

    def _derives_from_ids(self, name: str, wanted: int) -> bool:
        """Whether to derive these few values from their ids; after many such reads the whole column is."""
        if (
            self._derived_reads >= _MAX_DERIVED_READS
            or wanted * _FEWER > self.count
            or not self._is_id_property(name)
        ):
            return False
        self._derived_reads = _MAX_DERIVED_READS if self.is_cached(name) else self._derived_reads + 1
        return not self.is_cached(name)

    def _is_id_property(self, name: str) -> bool:
        return self.id_property is not None and name == self.id_property.name and self.is_cached(ID)

    def _from_ids(self, ids: pa.Array) -> pa.Array:
        assert self.id_property is not None
        return ids if pa.types.is_string(self.id_property.type) else ids.cast(self.id_property.type)

    def _load_column(self, name: str) -> pa.Array:
        if self._is_id_property(name):
            return self._from_ids(self.ids())
        if self.growth is None:
            return _to_array(self.table.scan([name]).column(name))
        pieces: GrowingColumn | None = self._memory.get(self._cache_key("pieces", name))
        if pieces is not None:
            return pieces.whole()
        older = _cached_column_of(self._memory, self.growth.base, name)
        if older is not None:
            return older.joined(self.added(name)).whole()
        read = self.table.scan([name], row_ids=True)
        places = np.full(self.count, NO_ROW, dtype=np.int64)
        places[self.positions_of(read.column("_rowid").to_numpy())] = np.arange(len(read))
        return _to_array(read.column(name)).take(pa.array(places, mask=places < 0))

    def added(self, name: str) -> pa.Array:
        """Return the values at the positions that were added."""
        assert self.growth is not None
        read = self.growth.values
        if read is None or name not in read.column_names:
            read = self.table.take(pa.array(self.growth.added), [name])
        return _to_array(read.column(name))

    # --- ids and row ids ---------------------------------------------------------------------------

    def find(self, ids: pa.Array) -> Positions:
        """The position of each id; NO_ROW where there is none."""
        if len(ids) <= _FEW:
            return self.find_few(ids.to_pylist())
        if len(ids) <= _MOST_ASKED and not self._reads_whole(ID, len(ids)):
            return self._find_in_table(ids)
        return self._find_by_scan(ids)

    def find_few(self, ids: Sequence[str | None]) -> Positions:
        """The same for ids that are no column."""
        if len(ids) == 0:
            return np.empty(0, dtype=np.int64)
        if len(ids) > _FEW:
            return self.find(pa.array(ids, pa.string()))
        places = self.id_positions()
        if places is None and not self._reads_whole(ID, len(ids)):
            return self._find_in_table(pa.array(ids, pa.string()))
        places = places or self._index_ids_if_worthwhile()
        if places is not None:
            return np.array([places.find(each) for each in ids], dtype=np.int64)
        if len(ids) == 1 and ids[0] is not None:
            return np.array([self._index_of(ids[0])], dtype=np.int64)
        return self._find_by_scan(pa.array(ids, pa.string()))

    def id_positions(self) -> IdPositions | None:
        """Return the cached dictionary of ids, of this version or derived from the one it grew from."""
        found: IdPositions | None = self._memory.get(self._cache_key("places"))
        if found is not None or self.growth is None:
            return found
        older: IdPositions | None = self._memory.get((*self.growth.base, "places"))
        if older is None:
            return None
        removed = self.growth.removed.tolist()
        found = older.grow(self.added(ID).to_pylist(), self.growth.base_count, removed)
        if found is not None:
            self._memory.keep(self._cache_key("places"), found, found.nbytes, depends_on=found.kept_as)
        return found

    def _index_of(self, id_: str) -> int:
        """Return the position of one id by scanning all."""
        held, behind = self._cached_or_loaded(ID), 0
        for part in (held.first, held.later):
            place = -1 if part is None else pc.index(part, id_).as_py()
            while place >= 0:
                if not is_among(self._dead, np.array([behind + place]))[0]:
                    return int(behind + place)
                place = pc.index(
                    part, id_, start=place + 1
                ).as_py()  # a dead position: the row was written again
            behind = len(held.first)
        return NO_ROW

    def _find_by_scan(self, ids: pa.Array) -> Positions:
        """Find ids in one scan; hashes the smaller side, these ids or all."""
        return run_in_worker(len(ids) + self.count, lambda: self._scan_ids(ids))

    def _scan_ids(self, ids: pa.Array) -> Positions:
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

    def _find_in_table(self, ids: pa.Array) -> Positions:
        """Find ids in the stored table, which has an index on them if it is large and maintained."""
        where = one_of(ID, ids.unique().to_pylist())
        found = run_in_worker(self.count, lambda: self.table.scan([ID], where=where, row_ids=True))
        places = pc.index_in(ids, value_set=_to_array(found.column(ID))).fill_null(NO_ROW)
        positions = np.append(self.positions_of(found.column("_rowid").to_numpy()), NO_ROW)
        return np.asarray(positions[places.to_numpy(zero_copy_only=False)])

    def _index_ids_if_worthwhile(self) -> IdPositions | None:
        """Return a dictionary of all ids, built once enough scans were made; None before that."""
        if self.count > _DICTIONARY_ROWS:
            return None
        self._passes += 1
        if self._passes < _PASSES:
            return None
        return run_in_worker(self.count, self._index_ids_once)

    def _index_ids_once(self) -> IdPositions:
        # The worker thread takes the lock: the thread that waits for it must not hold it.
        key = self._cache_key("places")
        with self._lock:
            return self._memory.get_or_make(
                key, lambda: index_ids(self._live_ids(), key), lambda made: made.nbytes
            )

    def _live_ids(self) -> pa.Array:
        if self.alive is None:
            return self.ids()
        return self._memory.get_or_make(
            self._cache_key("live", ID),
            lambda: pc.if_else(pa.array(self.alive), self.ids(), None),
            lambda made: int(made.nbytes),
        )

    @property
    def row_ids(self) -> NDArray[np.uint64]:
        """The stable row id of each position."""
        return self._load_row_numbers().all()

    def _load_row_numbers(self) -> RowNumbers:
        if self.growth is not None:
            return self.growth.numbers
        key = self._cache_key("numbers")
        return self._memory.get_or_make(
            key, lambda: run_in_worker(self.count, self._read_numbers), lambda made: made.nbytes
        )

    def _read_numbers(self) -> RowNumbers:
        row_ids = self.table.scan([], row_ids=True).column("_rowid").to_numpy()
        return RowNumbers.of(row_ids, self.positions(), self._cache_key("numbers"))

    def positions_of(self, row_ids: NDArray[np.uint64]) -> Positions:
        """The live position of each row id; NO_ROW where there is none."""
        return self._load_row_numbers().positions_of(row_ids, self._dead)

    # --- moving on ---------------------------------------------------------------------------------

    def grow(self, identity: Identity, table: Table) -> Rows | None:
        """Return the rows of a later version, derived from these; None when too much changed."""
        # Asked first, because a delta reads whole rows.
        if abs(table.count() - self.live_count) * _MOST_DEAD > self.live_count + _FEW_CHANGES:
            return None
        change = self._read_changes(Delta(self.table, table))
        places = self.positions_of(change.gone)
        removed = places[places >= 0]
        dead = np.union1d(self._dead, removed)
        count = self.count + len(change.added)
        # Anything the delta missed shows in the number of rows.
        if len(dead) > count // _MOST_DEAD or count - len(dead) != table.count():
            return None
        numbered = (*identity, next(_numberings))
        numbers = self._load_row_numbers().grow(change.added)
        if needs_rebuild(len(numbers.later), len(numbers.first)):
            key = (*numbered, "numbers")
            live = np.setdiff1d(np.arange(count), dead, assume_unique=True)
            numbers = RowNumbers.of(numbers.all(), live, key)
            self._memory.keep(key, numbers, numbers.nbytes)
        growth = Growth(
            self.identity,
            self._identities_before(),
            self.count,
            removed,
            change.added,
            change.values,
            dead,
            numbers,
        )
        grown = Rows(self.key, numbered, table, self._memory, growth, self.id_property)
        if change.values is not None:
            # Now, or later rows would find none to grow from if no read of this version asks by id.
            grown.id_positions()
        return grown

    def _identities_before(self) -> tuple[Identity, ...]:
        """The identities of the rows that these grew from, the newest first."""
        growth = self.growth
        return () if growth is None else (growth.base, *growth.before[: _MOST_BEFORE - 1])

    def _read_changes(self, delta: Delta) -> _Change:
        """Read which rows were added and removed, with the new values of cached columns."""
        names = [name for name in delta.end.schema.names if self.is_cached(name)]
        read = delta.written(names, _FEW_CHANGES)
        if read is None:
            updated = _row_ids(delta.updated())
            added = np.concatenate([updated, _row_ids(delta.inserted())])
            return _Change(added, np.concatenate([updated, delta.deleted_row_ids().to_numpy()]), None)
        added, created = _row_ids(read), read.column(CREATED_AT).to_numpy()
        updated = added[created <= delta.begin.version]
        deleted = delta.deleted_row_ids(len(added) - len(updated)).to_numpy()
        return _Change(added, np.concatenate([updated, deleted]), read.select(names))

    def _cache_key(self, *what: str) -> Hashable:
        return (*self.identity, *what)


@dataclass(frozen=True, slots=True)
class _Change:
    """The rows that two versions of a table do not share."""

    added: NDArray[np.uint64]
    """The row ids of rows that were added, or written again."""
    gone: NDArray[np.uint64]
    """The row ids of rows that were deleted, or written again."""
    values: pa.Table | None
    """What was read of those that were added."""


def _cached_column_of(memory: ReadCache, identity: Identity, name: str) -> GrowingColumn | None:
    """Return the cached column of some version, if any."""
    key = (*identity, "column", name)
    whole: pa.Array | None = memory.get(key)
    if whole is not None:
        return GrowingColumn(whole, key)
    found: GrowingColumn | None = memory.get((*identity, "pieces", name))
    return found


def _row_ids(rows: pa.Table) -> NDArray[np.uint64]:
    return np.asarray(rows.column("_rowid").to_numpy(), dtype=np.uint64)


def _is_consecutive(positions: Positions) -> bool:
    """Whether these are consecutive positions; NO_ROW is none."""
    if len(positions) == 0 or positions[0] < 0 or positions[-1] - positions[0] != len(positions) - 1:
        return False
    return bool((np.diff(positions) == 1).all())


def _to_array(column: pa.ChunkedArray) -> pa.Array:
    """One array of a column; texts beyond 2 GB need the wider type."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_string(column.type) and column.nbytes > 2**31 - 1:
        column = column.cast(pa.large_string())
    return column.combine_chunks()


def _encode_column(column: pa.Array) -> Codes:
    encoded = column.dictionary_encode()
    codes = encoded.indices.fill_null(NO_ROW).to_numpy(zero_copy_only=False).astype(np.int32)
    return Codes(codes, encoded.dictionary)
