"""What the checks of a load look at: its rows by their positions in the input, and the stored rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import cast
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.constraints.faults import NO_ROW, Faults, Rule
from omnigraph.engine.constraints.stored_rows import COUNTED, EDGE, End
from omnigraph.engine.constraints.table_change import is_among
from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.graph.table_types import ID, SOURCE, TableType
from omnigraph.engine.load.load_job import LoadJob
from omnigraph.engine.load.staging import StagedItem, StagedType
from omnigraph.engine.rows.violations import Flags, Numbers
from omnigraph.engine.tasks.buckets import MAX_BUCKETS
from omnigraph.engine.tasks.runner import LocalRunner, Runner
from omnigraph.lang.schema.catalog import Cardinality, EdgeType
from omnigraph.storage.fragments import group_by_rows, list_fragments
from omnigraph.storage.pieces import read_piece

POSITION = "position"
"""Where a row stands in the input: the number of its item, then its place among the rows of its type."""

_ROWS_PER_TASK = 4 << 20

Dropped = Mapping[str, NDArray[np.int64]]
"""The positions, by table and in order, of rows that do not count."""


def split_positions(positions: Numbers) -> tuple[Numbers, Numbers]:
    """The item and the place in it behind positions."""
    return positions >> 32, positions & 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class NewRows:
    """The rows of one type in one item of a load."""

    key: str
    item: int
    staged: StagedType = field(repr=False)

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.staged.rows

    def columns(self, job: LoadJob, columns: Sequence[str]) -> pa.Table:
        """Some columns of all rows."""
        access, place = job.root.tables.access, job.pieces(self.key)
        batches = [
            batch for piece in self.staged.pieces for batch in read_piece(access, place, piece, columns)
        ]
        return pa.Table.from_batches(batches).select(list(columns))

    def read(self, job: LoadJob, columns: Sequence[str], dropped: Dropped) -> pa.Table:
        """Some columns, and the positions, of the rows that count."""
        found = self.columns(job, columns)
        positions = (self.item << 32) + np.arange(found.num_rows, dtype=np.int64)
        found = found.append_column(POSITION, pa.array(positions))
        kept = mark_kept_rows(self.item, found.num_rows, dropped.get(self.key))
        return found if kept is None else found.filter(pa.array(kept))


def mark_kept_rows(item: int, rows: int, gone: Numbers | None) -> Flags | None:
    """Which rows of one type in an item are not at the given positions; None where all are kept."""
    if gone is None:
        return None
    low, high = np.searchsorted(gone, [item << 32, (item + 1) << 32])
    if low == high:
        return None
    kept = np.ones(rows, np.bool_)
    kept[gone[low:high] - (item << 32)] = False
    return kept


def merge_positions(*parts: Dropped) -> Dropped:
    """The positions in any of the parts."""
    keys = sorted({key for part in parts for key in part})
    return {key: np.unique(np.concatenate([part[key] for part in parts if key in part])) for key in keys}


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part of the rows that a table has at the version a load was prepared on."""

    key: str
    entry: TableEntry
    fragments: tuple[int, ...] = field(repr=False)
    rows: int
    """How many there are."""

    def columns(self, job: LoadJob, columns: Sequence[str]) -> pa.Table:
        """Some columns of the rows."""
        root, entry = job.root, self.entry
        table = root.tables.open(root.layout.table(entry.path), entry.version, branch=entry.owner)
        return table.scan(list(columns), fragments=self.fragments, ordered=False)


View = NewRows | StoredPart


def list_new_rows(items: Sequence[StagedItem], key: str) -> list[NewRows]:
    """The views of a load's rows of one type, in input order."""
    return [
        NewRows(key, one.item.number, staged)
        for one in items
        for staged in one.types
        if staged.key == key and staged.pieces
    ]


def list_stored_parts(job: LoadJob, entry: TableEntry) -> list[StoredPart]:
    """The views of a stored table: together all of its rows."""
    root = job.root
    table = root.tables.open(root.layout.table(entry.path), entry.version, branch=entry.owner)
    return [
        StoredPart(entry.key, entry, tuple(one.id for one in some), sum(one.rows for one in some))
        for some in group_by_rows(list_fragments(table), _ROWS_PER_TASK)
    ]


FEW = 1 << 20
_ROWS_PER_BUCKET = 1 << 20


@dataclass(frozen=True, slots=True)
class CheckTask:
    """What travels to the tasks of the checks."""

    job: LoadJob
    mode: Mode
    targets: Mapping[str, TableType] = field(repr=False)

    def releases(self, key: str) -> bool:
        """Whether edges of a type are counted that the load may move from one source to another."""
        return self.mode is Mode.MERGE and self.counts(key)

    def counts(self, key: str) -> bool:
        """Whether it matters how many edges of a type a node has."""
        owner = self.targets[key].owner
        return isinstance(owner, EdgeType) and owner.cardinality != Cardinality()

    def note_released(self, key: str, edges: pa.Table) -> str:
        """Keep stored edges for a later check; the name by which it finds them."""
        name = uuid4().hex
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, edges.schema) as writer:
            writer.write_table(edges)
        self.job.root.objects.write_bytes(self.job.released(key, name), sink.getvalue().to_pybytes())
        return name

    def released(self, key: str, name: str) -> pa.Table:
        """Edges that were kept."""
        stored = self.job.root.objects.read_bytes_if_exists(self.job.released(key, name))
        return pa.ipc.open_stream(stored).read_all()


@dataclass(frozen=True)
class CheckScope:
    """A load and the state of the branch it is checked against."""

    runner: Runner
    task: CheckTask
    items: Sequence[StagedItem]
    entry: Callable[[str], TableEntry]
    """A table of the branch by its key."""

    @property
    def mode(self) -> Mode:
        """What happens to rows that are stored already."""
        return self.task.mode

    @cached_property
    def keys(self) -> list[str]:
        """The types of the load, nodes first."""
        found = {staged.key for one in self.items for staged in one.types}
        return sorted(found, key=lambda key: (key.startswith("edge:"), key))

    def new(self, key: str) -> list[NewRows]:
        """The load's rows of a type."""
        return list_new_rows(self.items, key)

    def old(self, key: str) -> list[StoredPart]:
        """The stored rows of a type."""
        return list_stored_parts(self.task.job, self.entry(key))

    def releases(self, key: str) -> bool:
        """As `Task.releases`."""
        return self.task.releases(key)

    def edge(self, key: str) -> EdgeType:
        """The declaration of an edge type."""
        return cast(EdgeType, self.task.targets[key].owner)

    def runner_for(self, rows: int) -> Runner:
        """Who looks at so many rows: of few, this process has seen all before another would have begun."""
        return LocalRunner() if rows <= FEW else self.runner

    def buckets(self, views: Sequence[View]) -> int:
        """Into how many parts the keys of these rows go: each is small, and there is one for every core.

        No more than that, because a part is a task, and beginning one costs as much as many rows.
        """
        rows = count_rows(views)
        return min(MAX_BUCKETS, max(self.runner_for(rows).cores, -(-rows // _ROWS_PER_BUCKET)))


def count_rows(views: Sequence[View]) -> int:
    """How many rows are looked at."""
    return sum(view.rows for view in views)


@dataclass(frozen=True, slots=True)
class BucketRows:
    """Stored rows by table; a table that is not there has none."""

    tables: Mapping[str, pa.Table]

    def ids(self, key: str) -> pa.ChunkedArray:
        """Every id of a table."""
        return self._build_table(key, [ID]).column(ID)

    def existing(self, key: str, ids: pa.Array) -> pa.ChunkedArray:
        """Those of the ids that a table has."""
        return self._rows_with(key, [ID], ID, ids).column(ID)

    def holders(self, key: str, columns: Sequence[str], rows: pa.Table) -> pa.Table:
        """`id` and the columns of rows that may equal one of the rows: all that met."""
        wanted = list(dict.fromkeys([ID, *columns]))
        return self._build_table(key, wanted, [rows.schema.field(name) for name in columns])

    def edges(self, key: str, ids: pa.Array) -> pa.Table:
        """`id` and `src` of the edges with these ids."""
        return self._rows_with(key, [ID, SOURCE], ID, ids)

    def edges_at(self, key: str, end: End, nodes: pa.Array) -> pa.Table:
        """`id`, `src` and `dst` of the edges that start, or end, at one of these nodes."""
        return self._rows_with(key, EDGE, end, nodes)

    def edge_counts(self, key: str, sources: pa.Array | None) -> pa.Table:
        """`src` and `count` of the nodes where edges start."""
        found = self._build_table(key, [SOURCE])
        if sources is not None:
            found = found.filter(pa.array(is_among(found.column(SOURCE), sources)))
        counted = found.group_by(SOURCE).aggregate([([], "count_all")])
        return pa.table([counted.column(SOURCE), counted.column("count_all")], schema=COUNTED)

    def _rows_with(self, key: str, columns: list[str], column: str, values: pa.Array) -> pa.Table:
        found = self._build_table(key, list(dict.fromkeys([*columns, column])))
        return found.filter(pa.array(is_among(found.column(column), values))).select(columns)

    def _build_table(self, key: str, columns: list[str], fields: Sequence[pa.Field] = ()) -> pa.Table:
        found = self.tables.get(key)
        if found is not None:
            return found.select(columns)
        known = {field.name: field for field in fields}
        return pa.schema([known.get(name, pa.field(name, pa.string())) for name in columns]).empty_table()


_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Breaches:
    """Rows of one type that break one rule, or stored rows that would."""

    rule: Rule
    key: str
    positions: Numbers
    """Of those that are reported, in order; `NO_ROW` for a stored row."""
    ids: pa.Array
    reasons: pa.Array
    others: Numbers
    """The positions of further rows, where all must be known."""
    total: int
    """How many there are in all."""
    final: bool = False
    """Leaving out the rows would not help."""
    place: int = 0
    """Of several breaches of one row, those with lower numbers are reported first."""
    remedy: str | None = None
    """What helps."""
    about: str | None = None
    """The table of the ids, where it is another one."""

    @property
    def rows(self) -> Numbers:
        """The positions of all rows of the load that are known to break the rule."""
        every: Numbers = np.concatenate([self.positions, self.others])
        known: Numbers = every[every != NO_ROW]
        return known


def to_breaches(faults: Faults, positions: Numbers, job: LoadJob, place: int = 0) -> Breaches:
    """Faults of rows that are at these positions of the load."""
    known = faults.rows != NO_ROW
    at = np.full(len(faults), NO_ROW, np.int64)
    at[known] = positions[faults.rows[known]]
    order = np.lexsort((faults.ranks, at))
    reported = order if job.keeps_all else order[: job.report_limit]
    others = at[order[len(reported) :]] if job.skips_bad else _NONE
    chosen = pa.array(reported)
    return Breaches(
        faults.rule,
        faults.target.key,
        at[reported],
        faults.ids.take(chosen),
        faults.reasons.take(chosen),
        others,
        len(faults),
        faults.final,
        place,
        faults.remedy,
        faults.about,
    )


def merge_breaches(parts: Iterable[Breaches]) -> list[Breaches]:
    """What all tasks found, one value for each type, rule and remedy."""
    groups: dict[tuple[str, Rule, bool, int, str], list[Breaches]] = {}
    for part in parts:
        alike = (part.key, part.rule, part.final, part.place, part.remedy or "")
        groups.setdefault(alike, []).append(part)
    return [_merge_breaches(groups[group]) for group in sorted(groups)]


def _merge_breaches(parts: list[Breaches]) -> Breaches:
    first = parts[0]
    return Breaches(
        first.rule,
        first.key,
        np.concatenate([part.positions for part in parts]),
        pa.concat_arrays([part.ids for part in parts]),
        pa.concat_arrays([part.reasons for part in parts]),
        np.concatenate([part.others for part in parts]),
        sum(part.total for part in parts),
        first.final,
        first.place,
        first.remedy,
        first.about,
    )
