"""The tables of one snapshot as reads see them: numbered rows, and who is linked to whom."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pyarrow as pa

from omnigraph.engine.columns import SOURCE, TARGET
from omnigraph.engine.layout import table_key
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.pinned import explained, open_table
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import OmnigraphError, StorageFailure
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.query.frame import NO_ROW, Positions
from omnigraph.query.memory import Memory, shared_memory
from omnigraph.query.rows import Identity, Rows
from omnigraph.query.topology.saved import is_worth_saving, save_topology, saved_topology
from omnigraph.query.topology.topology import Linked, Topology, build, extended
from omnigraph.storage.tables import Table

_BYTES_TO_SORT = 128  # of an edge while its table is sorted, about
_NEAR = 64  # versions that a table may have moved and still be worth reading what changed
_SMALL_ENTRY = 256  # bytes, about


class Sources:
    """Rows and links of the types of one snapshot."""

    def __init__(self, graph: OpenGraph, snapshot: Snapshot, catalog: Catalog, memory: Memory) -> None:
        self.graph = graph
        self.snapshot = snapshot
        self.catalog = catalog
        self.memory = memory
        self._rows: dict[str, Rows] = {}
        self._linked: dict[str, Linked] = {}
        self._used: dict[Hashable, Linked | Topology] = {}

    def nodes(self, type_name: str) -> Rows:
        """The nodes of a type."""
        return self.rows(table_key("node", type_name))

    def edges(self, type_name: str) -> Rows:
        """The edges of a type."""
        return self.rows(table_key("edge", type_name))

    def rows(self, key: str) -> Rows:
        """The rows of a table."""
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = self._opened(key)
        return found

    def linked(self, edge_type: str) -> Linked:
        """The edges of a type between the rows of its two node types."""
        found = self._linked.get(edge_type)
        if found is None:
            found = self._linked[edge_type] = self._joined(edge_type)
        return found

    def is_linked(self, edge_type: str) -> bool:
        """Whether the adjacency of an edge type is in memory."""
        return self.memory.get(_part(self.edges(edge_type).identity, "topology")) is not None

    # --- rows --------------------------------------------------------------------------------------

    def _opened(self, key: str) -> Rows:
        identity = self._identity(key)
        found: Rows | None = self.memory.get(_part(identity, "rows"))
        if found is not None:
            return found
        made = self._grown(key, identity) or Rows(key, identity, self._table(key), self.memory)
        self.memory.keep(_part(identity, "rows"), made, made.nbytes)
        self._note_newest(identity)
        return made

    def _identity(self, key: str) -> Identity:
        """Where the version of a table is stored: branches that inherit it share what is kept of it."""
        entry = self.snapshot.entries[key]
        life = self.snapshot.life if entry.owner is not None else ()
        return (self.graph.root.uri, self.graph.origin, entry.path, entry.owner, life, entry.version)

    def _grown(self, key: str, identity: Identity) -> Rows | None:
        """The rows made of those of a version a little older, when these are known."""
        newest: int | None = self.memory.get(_part(identity[:-1], "newest"))
        if newest is None or not 0 < self.snapshot.entries[key].version - newest <= _NEAR:
            return None
        older: Rows | None = self.memory.get(_part((*identity[:-1], newest), "rows"))
        if older is None:
            return None
        try:
            return older.grown(identity, self._table(key))
        except StorageFailure:
            return None  # the older version was cleaned up; this one is read as it is

    def _note_newest(self, identity: Identity) -> None:
        """Remember the newest version that was read: the next one is grown from it."""
        place = _part(identity[:-1], "newest")
        known: int | None = self.memory.get(place)
        version = identity[-1]
        assert isinstance(version, int)
        if known is None or known < version:
            self.memory.keep(place, version, _SMALL_ENTRY)

    def _table(self, key: str) -> Table:
        return open_table(self.graph, self.snapshot, key)

    # --- links -------------------------------------------------------------------------------------

    def _joined(self, edge_type: str) -> Linked:
        declared = self.catalog.edges[edge_type]
        edges = self.edges(edge_type)
        sources, targets = self.nodes(declared.source), self.nodes(declared.target)
        key = (*edges.identity, "linked", sources.identity, targets.identity)
        found: Linked | None = self.memory.get(key)
        if found is None:
            shared = declared.source == declared.target
            topology = self._topology(edges, shared)
            known = self._older_link(topology, edges, sources, targets)
            ends = _places(topology.sources, sources, None if known is None else known.source_positions)
            if shared:
                found = Linked(topology, ends, sources.count)
            else:
                others = _places(topology.targets, targets, None if known is None else known.target_positions)
                found = Linked(topology, ends, sources.count, others, targets.count)
        self._used[key] = found
        return found

    def _older_link(self, topology: Topology, edges: Rows, sources: Rows, targets: Rows) -> Linked | None:
        """The link of the versions that these rows were grown from, if its codes are still the same."""
        before = [rows.growth.base if rows.growth else rows.identity for rows in (edges, sources, targets)]
        found: Linked | None = self.memory.get((*before[0], "linked", before[1], before[2]))
        if found is None:
            return None
        older = found.topology
        same = _begins_with(topology.sources, older.sources) and _begins_with(topology.targets, older.targets)
        return found if same else None

    def _topology(self, edges: Rows, shared: bool) -> Topology:
        key = _part(edges.identity, "topology")
        found: Topology | None = self.memory.get(key)
        if found is None:
            found = self._extended(edges) or saved_topology(self.graph, edges) or self._built(edges, shared)
        self._used[key] = found
        return found

    def _built(self, edges: Rows, shared: bool) -> Topology:
        made = build(edges.column(SOURCE), edges.column(TARGET), shared, edges.alive)
        save_topology(self.graph, edges, made)
        return made

    def _extended(self, edges: Rows) -> Topology | None:
        growth = edges.growth
        if growth is None:
            return None
        before: Topology | None = self.memory.get(_part(growth.base, "topology"))
        if before is None:
            return None
        return extended(before, growth.removed, edges.added(SOURCE), edges.added(TARGET))

    def explained(self, failure: StorageFailure) -> OmnigraphError:
        """What a failed read means: the version was cleaned up, or it is as bad as it looks."""
        for key, rows in self._rows.items():
            if rows.table.uri == failure.uri:
                return explained(self.graph, self.snapshot, key, failure)
        return failure

    def keep_topologies(self) -> None:
        """Have the file of every edge type that is large enough for one and can be sorted in memory."""
        most = shared_memory().limit // _BYTES_TO_SORT
        for edge in self.catalog.edges.values():
            edges = self.edges(edge.name)
            if is_worth_saving(edges) and edges.count <= most:
                self._topology(edges, edge.source == edge.target)

    def settle(self) -> None:
        """Tell the memory what the links that were used take by now; they grow with use."""
        for key, used in self._used.items():
            self.memory.keep(key, used, used.nbytes)


def _begins_with(ids: pa.Array, older: pa.Array) -> bool:
    return ids is older or ids.slice(0, len(older)).equals(older)


def _places(ids: pa.Array, rows: Rows, known: Positions | None) -> Positions:
    """The position of each id; what is known from older rows is looked up only where those died."""
    if known is None:
        return rows.find(ids)
    places = np.concatenate([known, np.full(len(ids) - len(known), NO_ROW, dtype=np.int64)])
    gone = places < 0 if rows.alive is None else (places < 0) | ~rows.alive[places]
    missing = np.flatnonzero(gone)
    places[missing] = rows.find(ids.take(pa.array(missing)))
    return places


def _part(identity: Identity, what: str) -> Hashable:
    return (*identity, what)
