"""Pictures as users ask for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypedDict

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.open_graph import ReadTarget
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.targets import parse_target
from omnigraph.errors import BadRequest, InvalidValue
from omnigraph.lang.values import Stored, shorten_legibly
from omnigraph.notebook.picture import Picture, require_height
from omnigraph.notebook.rendering import require_packages
from omnigraph.notebook.selection import (
    NodeNames,
    NodeSelection,
    SnapshotReader,
    find_node_columns,
    select_named,
    select_returned,
)
from omnigraph.notebook.subgraph import build_subgraph, resolve_edge_types
from omnigraph.query.query_service import QueryService, ReadQuery
from omnigraph.query.reader import PinnedTarget, PreparedRead, Reader
from omnigraph.query.request import Limits

MOST_NODES = 10_000
MOST_HOPS = 10

DrawInput = str | os.PathLike[str] | NodeNames
"""A query, as a text or a `Path`; or nodes by name."""


class DrawOptions(TypedDict, total=False):
    """How to draw: which query of several, the moment, how far around, and what is written at nodes."""

    name: str | None
    branch: str | None
    commit: str | None
    version: int | None
    time: datetime | str | None
    hops: int
    edges: str | Sequence[str] | None
    label: str | None
    limit: int
    height: int


@dataclass(frozen=True, slots=True)
class DrawRequest:
    """The same, as values."""

    name: str | None = None
    branch: str | None = None
    commit: str | None = None
    version: int | None = None
    time: datetime | str | None = None
    hops: int = 0
    edges: str | Sequence[str] | None = None
    label: str | None = None
    limit: int = 500
    height: int = 500

    def __post_init__(self) -> None:
        """Say what cannot be drawn before anything is read."""
        for word, given, least, most in (
            ("limit", self.limit, 1, MOST_NODES),
            ("hops", self.hops, 0, MOST_HOPS),
        ):
            if not least <= given <= most:
                raise InvalidValue(f"{word} must be from {least} to {most:,}, got {given}")
        require_height(self.height)

    @property
    def target(self) -> ReadTarget:
        """The moment that is drawn."""
        return parse_target(self.commit, self.version, self.time, self.branch)

    def draw_picture(self, moment: SnapshotReader, chosen: NodeSelection) -> Picture:
        """The picture of chosen nodes and what is around them."""
        _require_label(moment, self.label)
        edges = resolve_edge_types(moment, self.edges)
        return Picture(build_subgraph(moment, chosen, edges, self.hops, self.limit), self.label, self.height)


def draw(
    questions: QueryService, what: DrawInput, params: Mapping[str, object] | None, request: DrawRequest
) -> Picture:
    """A picture of the nodes that a query returns or that are named, with the edges between them."""
    require_packages()
    if isinstance(what, str | os.PathLike):
        question = ReadQuery(what, params, request.name)

        def run(
            reader: Reader,
            query: PreparedRead,
            values: Mapping[str, Stored],
            pinned: PinnedTarget,
            limits: Limits,
        ) -> Picture:
            columns = find_node_columns(query.query)
            found = reader.read(query, values, pinned, limits)
            moment = _open_moment(questions, pinned.snapshot)
            return request.draw_picture(moment, select_returned(found, columns, request.limit))

        return questions.ask(request.target, question, run)
    if params is not None or request.name is not None:
        raise BadRequest("only a query has parameters and a name", remedy="give a query, or leave them out")
    given: object = what
    if not isinstance(given, Iterable):
        raise BadRequest(f"{given!r} names no nodes", remedy="give a query, ids of nodes, or ids by type")
    moment = _open_moment(questions, questions.opened().snapshot(request.target))
    return request.draw_picture(moment, select_named(moment, what, request.limit))


def _open_moment(questions: QueryService, snapshot: Snapshot) -> SnapshotReader:
    opened = questions.opened()
    return SnapshotReader(opened, snapshot, opened.catalog_at(snapshot))


def _require_label(moment: SnapshotReader, label: str | None) -> None:
    types = moment.catalog.nodes.values()
    if label is not None and not any(label in declared.properties for declared in types):
        raise BadRequest(
            f"no node type has a property '{shorten_legibly(label)}' to name nodes by",
            remedy="name a property, or leave it out to see ids",
        )
