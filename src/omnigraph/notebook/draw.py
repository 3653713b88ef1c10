"""Pictures as users ask for them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from omnigraph.engine.opened import Target
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.targets import read_target
from omnigraph.errors import BadRequest, InvalidValue
from omnigraph.lang.values import Stored, legible
from omnigraph.notebook.chosen import Chosen, Named, named, node_columns, returned
from omnigraph.notebook.moment import Moment
from omnigraph.notebook.packages import require_packages
from omnigraph.notebook.part import edges_named, part_of
from omnigraph.notebook.picture import Picture, require_height
from omnigraph.query.ask import Question, Questions
from omnigraph.query.prepared import Prepared
from omnigraph.query.read import Pinned, Reader
from omnigraph.query.request import Limits

MOST_NODES = 10_000
MOST_HOPS = 10

Drawn = str | os.PathLike[str] | Named
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
    def target(self) -> Target:
        """The moment that is drawn."""
        return read_target(self.commit, self.version, self.time, self.branch)

    def picture(self, moment: Moment, chosen: Chosen) -> Picture:
        """The picture of chosen nodes and what is around them."""
        _require_label(moment, self.label)
        edges = edges_named(moment, self.edges)
        return Picture(part_of(moment, chosen, edges, self.hops, self.limit), self.label, self.height)


def draw(
    questions: Questions, what: Drawn, params: Mapping[str, object] | None, request: DrawRequest
) -> Picture:
    """A picture of the nodes that a query returns or that are named, with the edges between them."""
    require_packages()
    if isinstance(what, str | os.PathLike):
        question = Question(what, params, request.name)

        def run(
            reader: Reader, query: Prepared, values: Mapping[str, Stored], pinned: Pinned, limits: Limits
        ) -> Picture:
            columns = node_columns(query.query)
            found = reader.read(query, values, pinned, limits)
            moment = _moment(questions, pinned.snapshot)
            return request.picture(moment, returned(found, columns, request.limit))

        return questions.ask(request.target, question, run)
    if params is not None or request.name is not None:
        raise BadRequest("only a query has parameters and a name", remedy="give a query, or leave them out")
    moment = _moment(questions, questions.opened().snapshot(request.target))
    return request.picture(moment, named(moment, what, request.limit))


def _moment(questions: Questions, snapshot: Snapshot) -> Moment:
    opened = questions.opened()
    return Moment(opened, snapshot, opened.catalog_at(snapshot))


def _require_label(moment: Moment, label: str | None) -> None:
    types = moment.catalog.nodes.values()
    if label is not None and not any(label in declared.properties for declared in types):
        raise BadRequest(
            f"no node type has a property '{legible(label)}' to name nodes by",
            remedy="name a property, or leave it out to see ids",
        )
