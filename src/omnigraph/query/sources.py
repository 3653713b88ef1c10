"""The tables of one snapshot as reads use them: numbered rows, topologies, and links between rows."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pyarrow as pa

from omnigraph.engine.graph.layout import split_key, table_key
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.snapshot_tables import explain_failure, open_table
from omnigraph.engine.graph.table_types import ID, SOURCE, TARGET
from omnigraph.errors import OmnigraphError, StorageFailure
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.types import INTEGERS, Scalar
from omnigraph.lang.values import arrow_type
from omnigraph.query.frame import NO_ROW, Positions
from omnigraph.query.interrupt import run_in_worker
from omnigraph.query.read_cache import ReadCache, shared_cache
from omnigraph.query.rows import Identity, IdProperty, Rows
from omnigraph.query.topology.linked_topology import LinkedTopology
from omnigraph.query.topology.saved_topology import (
    is_saved,
    is_worth_saving,
    open_saved_topology,
    save_topology,
)
from omnigraph.query.topology.topology import Topology, build_topology, extend_topology
from omnigraph.storage.tables import Table

_BYTES_TO_SORT = 128  # of an edge while its table is sorted, about
_NEAR = 64  # versions that a table may have moved and still be worth reading what changed
_SMALL_ENTRY = 256  # bytes, about
_IDS_READ = 1_000_000
"""The ids of more nodes are not read to find one of them."""


class SnapshotSources:
    """The rows and links of one snapshot's types, opened on first use.

    `saved` says whether files of sorted edges may be used.
    """

    def __init__(
        self, graph: OpenGraph, snapshot: Snapshot, catalog: Catalog, memory: ReadCache, *, saved: bool = True
    ) -> None:
        self.graph = graph
        self.snapshot = snapshot
        self.catalog = catalog
        self.memory = memory
        self._saved = saved
        self._rows: dict[str, Rows] = {}
        self._linked: dict[str, LinkedTopology] = {}
        self._topologies: dict[Hashable, Topology] = {}
        self._links: dict[Hashable, tuple[LinkedTopology, Hashable]] = {}

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
            found = self._rows[key] = self._open_rows(key)
        return found

    def linked(self, edge_type: str) -> LinkedTopology:
        """The edges of a type between the rows of its two node types."""
        found = self._linked.get(edge_type)
        if found is None:
            found = self._linked[edge_type] = self._link_topology(edge_type)
        return found

    def topology(self, edge_type: str) -> Topology | None:
        """Return the topology of an edge type; None when all its edges would have to be sorted for it."""
        return self._known_topology(self.edges(edge_type))

    def is_numbered_by_nodes(self, edge_type: str) -> bool:
        """Whether the codes in the topology file are node positions, so that no id has to be looked up."""
        topology, declared = self.topology(edge_type), self.catalog.edges[edge_type]
        named = ("", "") if topology is None else topology.shape.numbered_by
        nodes = (self.nodes(declared.source), self.nodes(declared.target))
        return "" not in named and named == tuple(rows.about for rows in nodes)

    def learn_ids(self, edge_type: str) -> None:
        """Take the ids of an edge type's nodes from its topology file, where it has them by position."""
        declared = self.catalog.edges[edge_type]
        ends = {declared.target: 1, declared.source: 0}
        wanted = {end: rows for name, end in ends.items() if _lacks_ids(rows := self.nodes(name))}
        topology = self.topology(edge_type) if wanted else None
        if topology is None:
            return
        for end, rows in wanted.items():
            if topology.shape.numbered_by[end] == rows.about != "":
                rows.learn_ids(topology.targets if end else topology.sources)

    # --- rows --------------------------------------------------------------------------------------

    def _open_rows(self, key: str) -> Rows:
        identity = _table_identity(self.graph, self.snapshot, key)
        found: Rows | None = self.memory.get(_cache_key(identity, "rows"))
        if found is not None:
            return found
        older = self._older_rows(key, identity)
        # Rows that two threads grow are numbered twice, and what is cached for one does not fit the other.
        return run_in_worker(
            0 if older is None else older.count,
            lambda: self.memory.make_once(
                _cache_key(identity, "rows"), lambda: self._make_rows(key, identity, older)
            ),
        )

    def _make_rows(self, key: str, identity: Identity, older: Rows | None) -> Rows:
        """Open the rows of a version, derived from older ones where that costs less, and keep them."""
        table = self._open_table(key)
        made = None if older is None else _grow_rows(older, identity, table)
        if made is None:
            made = Rows(key, identity, table, self.memory, id_property=_find_id_property(self.catalog, key))
        self.memory.keep(_cache_key(identity, "rows"), made, made.nbytes, depends_on=made.depends_on)
        self._note_newest(identity)
        return made

    def _older_rows(self, key: str, identity: Identity) -> Rows | None:
        """Return the cached rows of a slightly older version."""
        newest: int | None = self.memory.get(_cache_key(identity[:-1], "newest"))
        if newest is None or not 0 < self.snapshot.entries[key].version - newest <= _NEAR:
            return None
        older: Rows | None = self.memory.get(_cache_key((*identity[:-1], newest), "rows"))
        return older

    def _note_newest(self, identity: Identity) -> None:
        """Remember the newest version that was read: the next one is grown from it."""
        place = _cache_key(identity[:-1], "newest")
        known: int | None = self.memory.get(place)
        version = identity[-1]
        assert isinstance(version, int)
        if known is None or known < version:
            self.memory.keep(place, version, _SMALL_ENTRY)

    def _open_table(self, key: str) -> Table:
        return open_table(self.graph, self.snapshot, key)

    # --- links -------------------------------------------------------------------------------------

    def _link_topology(self, edge_type: str) -> LinkedTopology:
        declared = self.catalog.edges[edge_type]
        edges = self.edges(edge_type)
        sources, targets = self.nodes(declared.source), self.nodes(declared.target)
        topology = self._known_topology(edges) or run_in_worker(
            edges.count, lambda: self._build_once(edges, sources, targets)
        )
        key = (*edges.identity, "linked", sources.identity, targets.identity)
        found: LinkedTopology | None = self.memory.get(key)
        if found is None or found.topology is not topology:
            nodes = topology.shape.sources + topology.shape.targets
            found = run_in_worker(nodes, lambda: self._link_once(key, topology, edges, sources, targets))
        self._links[key] = found, _cache_key(edges.identity, "topology")
        return found

    def _link_once(
        self, key: Hashable, topology: Topology, edges: Rows, sources: Rows, targets: Rows
    ) -> LinkedTopology:
        def make() -> LinkedTopology:
            made = self._make_link(topology, edges, sources, targets)
            self._links[key] = made, _cache_key(edges.identity, "topology")
            self.settle()
            return made

        found = self.memory.make_once(key, make)
        return found if found.topology is topology else self._make_link(topology, edges, sources, targets)

    def _make_link(self, topology: Topology, edges: Rows, sources: Rows, targets: Rows) -> LinkedTopology:
        known = self._older_link(topology, edges, sources, targets)
        named = topology.shape.numbered_by
        places = (
            None
            if named[0] and named[0] == sources.about
            else _match_positions(
                topology.sources, sources, None if known is None else known.source_positions
            )
        )
        if topology.shared:
            return LinkedTopology(topology, places, sources.count)
        others = (
            None
            if named[1] and named[1] == targets.about
            else _match_positions(
                topology.targets, targets, None if known is None else known.target_positions
            )
        )
        return LinkedTopology(topology, places, sources.count, others, targets.count)

    def _older_link(
        self, topology: Topology, edges: Rows, sources: Rows, targets: Rows
    ) -> LinkedTopology | None:
        """The link of the versions that these rows were grown from, if its codes are still the same."""
        before = [rows.growth.base if rows.growth else rows.identity for rows in (edges, sources, targets)]
        found: LinkedTopology | None = self.memory.get((*before[0], "linked", before[1], before[2]))
        if found is None or not self._is_usable(found.topology):
            return None
        older = found.topology
        same = _begins_with(topology.sources, older.sources) and _begins_with(topology.targets, older.targets)
        return found if same else None

    def _known_topology(self, edges: Rows) -> Topology | None:
        """Return the cached topology, one derived from an older version, or the saved one."""
        key = _cache_key(edges.identity, "topology")
        found: Topology | None = self._topologies.get(key) or self.memory.get(key)
        if found is None or not self._is_usable(found):
            found = self._extend_topology(edges)
        if found is None and self._saved:
            found = open_saved_topology(self.graph, edges)
        if found is not None:
            self._topologies[key] = found
        return found

    def _build_once(self, edges: Rows, sources: Rows, targets: Rows) -> Topology:
        if not self._saved:
            return self._build_topology(edges, sources, targets)  # what others cache may be damaged
        key = _cache_key(edges.identity, "topology")

        def make() -> Topology:
            made = self._build_topology(edges, sources, targets)
            return self.memory.keep(key, made, made.nbytes)

        found = self._topologies[key] = self.memory.make_once(key, make)
        return found

    def _build_topology(self, edges: Rows, sources: Rows, targets: Rows) -> Topology:
        shared = sources is targets
        nodes = (_ids_by_position(sources), None if shared else _ids_by_position(targets))
        made = build_topology(edges.column(SOURCE), edges.column(TARGET), shared, edges.alive, nodes)
        named = (
            sources.about if made.sources is nodes[0] else "",
            targets.about if made.targets is nodes[0 if shared else 1] else "",
        )
        save_topology(self.graph, edges, made, named)
        self._topologies[_cache_key(edges.identity, "topology")] = made
        return made

    def _extend_topology(self, edges: Rows) -> Topology | None:
        growth = edges.growth
        if growth is None:
            return None
        before: Topology | None = self.memory.get(_cache_key(growth.base, "topology"))
        if before is None or not self._is_usable(before):
            return None
        known = before
        return run_in_worker(
            edges.count,
            lambda: extend_topology(known, growth.removed, edges.added(SOURCE), edges.added(TARGET)),
        )

    def _is_usable(self, topology: Topology) -> bool:
        """Whether a topology may be used: another read may have cached that of a damaged file again."""
        return self._saved or not topology.shape.stored

    def explain_failure(self, failure: StorageFailure) -> OmnigraphError:
        """Return the error to raise for a failed read: the version was cleaned up, or the failure itself."""
        for key, rows in self._rows.items():
            if rows.table.uri == failure.uri:
                return explain_failure(self.graph, self.snapshot, key, failure)
        return failure

    def save_topologies(self) -> None:
        """Save the topology of every edge type that is large enough and can be sorted in memory."""
        most = shared_cache().limit // _BYTES_TO_SORT
        for edge in self.catalog.edges.values():
            edges, nodes = self.edges(edge.name), (self.nodes(edge.source), self.nodes(edge.target))
            if is_worth_saving(edges) and edges.count <= most and not is_saved(self.graph, edges, nodes):
                self._build_topology(edges, *nodes)

    def settle(self) -> None:
        """Update the cache with the current sizes of topologies and links, which grow with use."""
        for key, topology in list(self._topologies.items()):
            nbytes = topology.nbytes
            if not self.memory.knows(key, topology, nbytes):
                self.memory.keep(key, topology, nbytes)
        for key, (linked, topology_key) in list(self._links.items()):
            nbytes = linked.nbytes
            if not self.memory.knows(key, linked, nbytes):
                self.memory.keep(key, linked, nbytes, depends_on=topology_key)


def _grow_rows(older: Rows, identity: Identity, table: Table) -> Rows | None:
    try:
        return older.grow(identity, table)
    except StorageFailure:
        return None  # the older version was cleaned up; this one is read as it is


def known_rows(graph: OpenGraph, snapshot: Snapshot, memory: ReadCache, key: str) -> Rows | None:
    """The rows of a table, if some read has left them in memory."""
    return memory.get(_cache_key(_table_identity(graph, snapshot, key), "rows"))


def _table_identity(graph: OpenGraph, snapshot: Snapshot, key: str) -> Identity:
    """Return what identifies a table version: branches that inherit it share its cache entries."""
    entry = snapshot.entries[key]
    life = snapshot.incarnation if entry.owner is not None else ()
    return (graph.root.uri, graph.origin, entry.path, entry.owner, life, entry.version)


def _lacks_ids(nodes: Rows) -> bool:
    """Whether the ids of nodes are not cached, and few enough to read."""
    return nodes.count <= _IDS_READ and not nodes.is_cached(ID)


def _find_id_property(catalog: Catalog, key: str) -> IdProperty | None:
    """Return the property whose values are the ids: the key, if that is one String or integer."""
    kind, name = split_key(key)
    names = catalog.nodes[name].key if kind == "node" else ()
    if len(names) != 1:
        return None
    type_ = catalog.nodes[name].properties[names[0]].type
    return IdProperty(names[0], arrow_type(type_)) if type_.scalar in _PLAIN else None


_PLAIN = INTEGERS | {Scalar.STRING}


def _ids_by_position(nodes: Rows) -> pa.Array | None:
    """The ids by position, where every position is a node."""
    return nodes.ids() if nodes.alive is None else None


def _begins_with(ids: pa.Array, older: pa.Array) -> bool:
    return ids is older or ids.slice(0, len(older)).equals(older)


def _match_positions(ids: pa.Array, rows: Rows, known: Positions | None) -> Positions:
    """The position of each id; what is known from older rows is looked up only where those died."""
    if known is None:
        known = _leading_positions(ids, rows)
    places = np.concatenate([known, np.full(len(ids) - len(known), NO_ROW, dtype=np.int64)])
    gone = places < 0 if rows.alive is None else (places < 0) | ~rows.alive[places]
    missing = np.flatnonzero(gone)
    if len(missing):
        places[missing] = rows.find(ids.take(pa.array(missing)))
    return places


def _leading_positions(ids: pa.Array, rows: Rows) -> Positions:
    """The positions of ids that are those of the first rows, in the order of the rows."""
    both = min(len(ids), rows.count)
    same = rows.ids().slice(0, both).equals(ids.slice(0, both))
    return np.arange(both if same else 0)


def _cache_key(identity: Identity, what: str) -> Hashable:
    return (*identity, what)
