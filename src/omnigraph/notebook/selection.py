"""Select the nodes of a picture: those that a query returns, or those that are named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import split_key, table_key
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.snapshot_tables import explain_failure, open_table
from omnigraph.engine.graph.table_types import ID, SOURCE, TARGET
from omnigraph.engine.rows.predicate import one_of
from omnigraph.errors import BadRequest, StorageFailure
from omnigraph.lang.query.compile import CompiledRead
from omnigraph.lang.query.terms import EntityId
from omnigraph.lang.schema.catalog import Catalog, EdgeType
from omnigraph.lang.values import shorten_legibly
from omnigraph.query.pattern import find_tables
from omnigraph.query.plan_runner import output_columns
from omnigraph.query.result import Result

_MOST_ASKED = 1000
"""So many ids at most are put into one filter."""


@dataclass(frozen=True, slots=True)
class SnapshotReader:
    """A graph at a snapshot."""

    graph: OpenGraph
    snapshot: Snapshot
    catalog: Catalog

    def nodes(self, type_name: str, ids: Sequence[str], columns: Sequence[str]) -> pa.Table:
        """The nodes of a type with these ids, in no promised order."""
        key = table_key("node", type_name)
        found = [self._read_rows(key, [ID, *columns], one_of(ID, some)) for some in _split_ids(ids)]
        return pa.concat_tables(found or [self._read_rows(key, [ID, *columns], "false")])

    def edges_at(self, edge: EdgeType, end: str, ids: Sequence[str], limit: int) -> pa.Table:
        """The ends of up to so many edges that have one of these nodes at an end, `src` or `dst`."""
        key, left = table_key("edge", edge.name), limit
        found = []
        for some in _split_ids(ids):
            found.append(self._read_rows(key, [SOURCE, TARGET], one_of(end, some), left))
            left -= found[-1].num_rows
            if left <= 0:
                break
        return pa.concat_tables(found or [self._read_rows(key, [SOURCE, TARGET], "false")])

    def edges_between(self, edge: EdgeType, sources: Sequence[str], targets: Sequence[str]) -> pa.Table:
        """The ends of the edges of a type that join these nodes."""
        key, wanted = table_key("edge", edge.name), pa.array(targets, pa.string())
        found = []
        for some in _split_ids(sources):
            where = one_of(SOURCE, some)
            if 0 < len(targets) <= _MOST_ASKED:
                where = f"{where} AND {one_of(TARGET, targets)}"
            rows = self._read_rows(key, [SOURCE, TARGET], where)
            found.append(rows.filter(pc.is_in(rows.column(TARGET), value_set=wanted)))
        return pa.concat_tables(found or [self._read_rows(key, [SOURCE, TARGET], "false")])

    def _read_rows(self, key: str, columns: Sequence[str], where: str, limit: int | None = None) -> pa.Table:
        table = open_table(self.graph, self.snapshot, key)
        try:
            return table.scan(columns, where=where, limit=limit)
        except StorageFailure as failure:
            raise explain_failure(self.graph, self.snapshot, key, failure) from failure


def _split_ids(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + _MOST_ASKED] for start in range(0, len(ids), _MOST_ASKED))


Node = tuple[str, str]
"""A node by its type and id."""
NodeNames = Mapping[str, Iterable[str]] | Iterable[str]
"""Nodes as users name them: ids by type; or ids, and `Type:id` where several types have that id."""


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """Nodes in the order in which they were met, the first of so many."""

    nodes: list[Node]
    found: int


def find_node_columns(query: CompiledRead) -> dict[int, str]:
    """The columns of a query that are nodes, with their types."""
    tables = find_tables(query.plan)
    columns = {
        place: split_key(tables[output.term.var])[1]
        for place, output in enumerate(output_columns(query.plan))
        if isinstance(output.term, EntityId)
    }
    if not columns:
        raise BadRequest(
            f"query '{query.name}' returns no nodes to draw",
            remedy="return variables of nodes, as in `return { $p, $q }`",
        )
    return columns


def select_returned(result: Result, columns: Mapping[int, str], limit: int) -> NodeSelection:
    """The nodes in these columns of a result, row by row."""
    width = len(columns)
    rows = np.arange(len(result)) * width
    parts = [
        pa.table(
            {
                "type": pa.repeat(pa.scalar(type_name, pa.string()), len(result)),
                "id": result.table.column(place),
                "at": rows + nth,
            }
        )
        for nth, (place, type_name) in enumerate(columns.items())
    ]
    met = pa.concat_tables(parts).drop_null().group_by(["type", "id"]).aggregate([("at", "min")])
    first = met.sort_by("at_min").slice(0, limit)
    nodes = zip(first.column("type").to_pylist(), first.column("id").to_pylist(), strict=True)
    return NodeSelection(list(nodes), met.num_rows)


def select_named(moment: SnapshotReader, given: NodeNames, limit: int) -> NodeSelection:
    """The nodes that are named, each of which must exist."""
    if isinstance(given, Mapping):
        wanted = list(dict.fromkeys(_group_by_type(moment, given)))
        nodes = wanted[:limit]
        _require_nodes(moment, nodes)
        return NodeSelection(nodes, len(wanted))
    names = list(dict.fromkeys(map(_require_text, given)))
    places = _find_candidates(moment, names[:limit])
    return NodeSelection(
        list(dict.fromkeys(_require_one(name, places) for name in names[:limit])), len(names)
    )


def _group_by_type(moment: SnapshotReader, given: Mapping[str, Iterable[str]]) -> Iterator[Node]:
    for type_name, ids in given.items():
        if type_name not in moment.catalog.nodes:
            raise BadRequest(
                f"'{shorten_legibly(str(type_name))}' is not a node type",
                remedy=f"it may be: {', '.join(sorted(moment.catalog.nodes))}",
            )
        for id_ in [ids] if isinstance(ids, str) else ids:
            yield type_name, _require_text(id_)


def _require_text(id_: object) -> str:
    if isinstance(id_, str):
        return id_
    raise BadRequest(f"{shorten_legibly(repr(id_))} is not the id of a node", remedy="ids are texts")


def _require_nodes(moment: SnapshotReader, nodes: list[Node]) -> None:
    for type_name in dict.fromkeys(type_name for type_name, _ in nodes):
        ids = [id_ for name, id_ in nodes if name == type_name]
        known = set(moment.nodes(type_name, ids, []).column(ID).to_pylist())
        for id_ in ids:
            if id_ not in known:
                raise BadRequest(f"there is no node '{shorten_legibly(id_)}' of type '{type_name}'")


def _find_candidates(moment: SnapshotReader, names: list[str]) -> dict[str, list[Node]]:
    """All nodes that a name can mean."""
    places: dict[str, list[Node]] = {name: [] for name in names}
    for type_name in moment.catalog.nodes:
        prefix = f"{type_name}:"
        ids = [*names, *(name.removeprefix(prefix) for name in names if name.startswith(prefix))]
        known = set(moment.nodes(type_name, ids, []).column(ID).to_pylist())
        for name in names:
            id_ = name if name in known else name.removeprefix(prefix)
            if id_ in known:
                places[name].append((type_name, id_))
    return places


def _require_one(name: str, places: Mapping[str, list[Node]]) -> Node:
    found = places[name]
    if len(found) == 1:
        return found[0]
    if found:
        ways = " or ".join(f"'{type_name}:{shorten_legibly(id_)}'" for type_name, id_ in found)
        raise BadRequest(f"there are several nodes '{shorten_legibly(name)}'", remedy=f"name {ways}")
    raise BadRequest(f"there is no node '{shorten_legibly(name)}'", remedy="name a node by its id")
