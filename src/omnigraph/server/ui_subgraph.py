"""Handlers of parts of a graph: nodes that a text finds, nodes around others, the edges between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from starlette.responses import Response

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.graph.table_types import ID, SOURCE, TARGET
from omnigraph.engine.rows.predicate import one_of
from omnigraph.errors import BadRequest
from omnigraph.lang.schema.catalog import EdgeType, NodeType, Property
from omnigraph.lang.types import Scalar
from omnigraph.lang.values import column_to_json
from omnigraph.server.moments import authorize_moment, parse_moment, pin
from omnigraph.server.reads import query_seconds
from omnigraph.server.requests import Call
from omnigraph.server.wire.explorer import EdgeOutput, FindOutput, NodeOutput, SubgraphOutput, SubgraphRequest
from omnigraph.snapshot import Snapshot, pinned_by

MOST_NODES = 5000
MOST_HOPS = 3
MOST_FOUND = 200
EDGES_OF_NODE = 10
IDS_AT_ONCE = 1000
QUERY = """\
query q($t: String) {{
  match {{ $n: {type}  lower($n.{column}) contains $t }}
  return {{ $n }}
  limit {limit}
}}"""
"""Nodes with a text in a property."""

Node = tuple[str, str]
"""A node by its type and id."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads entities of a snapshot by their ids and ends."""

    snapshot: Snapshot

    def nodes(self, type_name: str, ids: Sequence[str]) -> list[NodeOutput]:
        """Return the nodes with these ids, as far as there are any."""
        owner = self.type(type_name)
        blobs = [one.name for one in owner.properties.values() if one.type.scalar is Scalar.BLOB]
        shown = _shown(owner)
        rows = self._rows("node", type_name, [ID, *shown], ID, ids)
        return [
            NodeOutput(type=type_name, id=id_, properties=properties, blobs=blobs)
            for id_, properties in zip(rows.column(ID).to_pylist(), _properties(rows, shown), strict=True)
        ]

    def ends_of(self, edge: EdgeType, end: str, ids: Sequence[str], most: int) -> list[str]:
        """Return the ids at the other ends of edges."""
        other = TARGET if end == SOURCE else SOURCE
        rows = self._rows("edge", edge.name, [other], end, ids, most)
        found: list[str] = rows.column(other).unique().to_pylist()
        return found

    def edges(
        self, edge: EdgeType, sources: Sequence[str], targets: Sequence[str], most: int
    ) -> list[EdgeOutput]:
        """Return the edges of a type that join these nodes."""
        if not sources or not targets:
            return []
        shown = _shown(edge)
        wanted = pa.array(targets, pa.string())
        rows = self._rows("edge", edge.name, [ID, SOURCE, TARGET, *shown], SOURCE, sources)
        rows = rows.filter(pc.is_in(rows.column(TARGET), value_set=wanted)).slice(0, most)
        columns = [rows.column(name).to_pylist() for name in (ID, SOURCE, TARGET)]
        return [
            EdgeOutput(
                type=edge.name,
                id=id_,
                from_=source,
                from_type=edge.source,
                to=target,
                to_type=edge.target,
                properties=properties,
            )
            for id_, source, target, properties in zip(*columns, _properties(rows, shown), strict=True)
        ]

    def type(self, name: str) -> NodeType:
        """Return a node type; raises `BadRequest` if the schema has none of this name."""
        found = self.snapshot.schema.nodes.get(name)
        if found is None:
            known = ", ".join(sorted(self.snapshot.schema.nodes))
            raise BadRequest(f"'{name}' is not a node type", remedy=f"it may be: {known}")
        return found

    def _rows(
        self,
        kind: Any,
        name: str,
        columns: Sequence[str],
        column: str,
        ids: Sequence[str],
        most: int | None = None,
    ) -> pa.Table:
        graph, pinned = pinned_by(self.snapshot)
        table = open_table(graph, pinned, table_key(kind, name))
        parts = [ids[start : start + IDS_AT_ONCE] for start in range(0, len(ids), IDS_AT_ONCE)]
        scans = [table.scan(columns, where=one_of(column, part), limit=most) for part in parts]
        return pa.concat_tables(scans or [table.scan(columns, where="false")])


async def read_subgraph(call: Call) -> Response:
    """Return nodes by id, those some edges away, and the edges between all of them."""
    asked = call.body(SubgraphRequest)
    moment = parse_moment(asked.branch, None, asked.commit)
    await authorize_moment(call, moment)
    if not 0 <= asked.hops <= MOST_HOPS or not 1 <= asked.limit <= MOST_NODES:
        raise BadRequest(
            "hops or limit is out of range", remedy=f"hops are 0 to {MOST_HOPS}, limit is 1 to {MOST_NODES}"
        )
    graph = call.graph
    return call.reply(await call.read(lambda: call.encode(_subgraph(pin(graph, moment), asked))))


def _subgraph(snapshot: Snapshot, asked: SubgraphRequest) -> SubgraphOutput:
    reader = Reader(snapshot)
    kinds = [
        edge for edge in snapshot.schema.edges.values() if asked.edges is None or edge.name in asked.edges
    ]
    met: dict[Node, None] = {(name, id_): None for name, ids in asked.nodes.items() for id_ in ids}
    last = list(met)
    for _ in range(asked.hops):
        near = _neighbors(reader, kinds, last, asked.limit)
        last = [node for node in near if node not in met]
        met.update(dict.fromkeys(last))
    kept = list(met)[: asked.limit]
    by_type = _group(kept)
    nodes = [node for name, ids in by_type.items() for node in reader.nodes(name, ids)]
    present = _group([(node.type, node.id) for node in nodes])
    most = asked.limit * EDGES_OF_NODE
    edges = [
        edge
        for kind in kinds
        for edge in reader.edges(kind, present.get(kind.source, []), present.get(kind.target, []), most)
    ]
    complete = len(kept) == len(met) and len(edges) <= most
    commit = snapshot.commit.id if snapshot.commit else None
    return SubgraphOutput(graph_commit_id=commit, nodes=nodes, edges=edges[:most], complete=complete)


def _neighbors(reader: Reader, kinds: Sequence[EdgeType], nodes: Sequence[Node], limit: int) -> list[Node]:
    by_type, near = _group(nodes), dict[Node, None]()
    for edge in kinds:
        for end, here, there in ((SOURCE, edge.source, edge.target), (TARGET, edge.target, edge.source)):
            if ids := by_type.get(here):
                found = reader.ends_of(edge, end, ids, limit + 1)
                near.update(dict.fromkeys((there, id_) for id_ in found))
    return list(near)


def _group(nodes: Sequence[Node]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, id_ in nodes:
        found.setdefault(name, []).append(id_)
    return found


async def find_nodes(call: Call) -> Response:
    """Return nodes by id first, then those whose texts contain what was asked for."""
    moment = parse_moment(call.query("branch"), None, call.query("commit"))
    await authorize_moment(call, moment)
    text, limit = (call.query("text") or "").strip(), _limit(call)
    types = call.request.query_params.getlist("type")
    graph, seconds = call.graph, query_seconds(call, None)

    def work() -> bytes:
        snapshot = pin(graph, moment)
        reader, met = Reader(snapshot), dict[Node, None]()
        for node in _matches(call, snapshot, text, types or list(snapshot.schema.nodes), limit, seconds):
            met[node] = None
            if len(met) >= limit:
                break
        found = {
            (node.type, node.id): node
            for name, ids in _group(list(met)).items()
            for node in reader.nodes(name, ids)
        }
        commit = snapshot.commit.id if snapshot.commit else None
        return call.encode(
            FindOutput(graph_commit_id=commit, nodes=[found[one] for one in met if one in found])
        )

    return call.reply(await call.read(work))


def _limit(call: Call) -> int:
    text = call.query("limit") or "20"
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST_FOUND):
        raise BadRequest(f"limit must be a number from 1 to {MOST_FOUND}, got '{text}'")
    return int(text)


def _matches(
    call: Call, snapshot: Snapshot, text: str, types: Sequence[str], limit: int, seconds: float
) -> Iterator[Node]:
    """Yield nodes with this id, then those with the text in a property, keys first."""
    if not text:
        return
    reader = Reader(snapshot)
    for name in types:
        yield from ((name, node.id) for node in reader.nodes(name, [text]))
    for key_only in (True, False):
        for name in types:
            owner = reader.type(name)
            for column in _texts(owner):
                if (column in owner.key) is key_only:
                    query = QUERY.format(type=name, column=column, limit=limit)
                    rows = snapshot.query(query, {"t": text.lower()}, timeout=seconds, cancel=call.cancel)
                    yield from ((name, id_) for id_ in rows.table.column(0).to_pylist())


def _texts(owner: NodeType) -> list[str]:
    return [
        one.name
        for one in owner.properties.values()
        if one.type.scalar is Scalar.STRING and not one.type.is_list
    ]


def _shown(owner: NodeType | EdgeType) -> dict[str, Property]:
    """Return the properties that JSON has, without Blobs."""
    return {one.name: one for one in owner.properties.values() if one.type.scalar is not Scalar.BLOB}


def _properties(rows: pa.Table, shown: Mapping[str, Property]) -> list[dict[str, Any]]:
    columns = [column_to_json(rows.column(name), one.type, js_safe=True) for name, one in shown.items()]
    if not columns:
        return [{} for _ in range(rows.num_rows)]
    return [dict(zip(shown, values, strict=True)) for values in zip(*columns, strict=True)]
