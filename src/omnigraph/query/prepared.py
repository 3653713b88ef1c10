"""A compiled read with all that is known of it before values, rows and the moment: for all its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.lang.query import plan as p
from omnigraph.lang.query.compile import CompiledMutation, CompiledQuery, CompiledRead
from omnigraph.lang.query.parameters import Decoder
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.types import Type
from omnigraph.query.outline import Outline
from omnigraph.query.pattern import tables_of
from omnigraph.query.point import Point, point_of
from omnigraph.query.run import outputs_of, schema_of


@dataclass(frozen=True, slots=True)
class Prepared:
    """A read that is ready to be run with any values on any snapshot of its schema."""

    query: CompiledRead
    decode: Decoder
    tables: Mapping[str, str]
    """The key of the table of each variable."""
    schema: pa.Schema
    types: tuple[Type, ...]
    """The types of the result columns."""
    outline: Outline
    point: Point | None
    """How it is answered at once, when it asks for properties of one node by its key."""

    @property
    def name(self) -> str:
        """What the query is called."""
        return self.query.name

    @property
    def plan(self) -> p.Plan:
        """What it does."""
        return self.query.plan


def prepared(query: CompiledRead, catalog: Catalog) -> Prepared:
    """A compiled read, ready to run."""
    plan = query.plan
    schema = schema_of(plan)
    return Prepared(
        query,
        Decoder(query.parameters),
        tables_of(plan),
        schema,
        tuple(output.term.type for output in outputs_of(plan)),
        Outline(),
        point_of(plan, schema, catalog),
    )


def ready(query: CompiledQuery, catalog: Catalog) -> Prepared | CompiledMutation:
    """A query as it is kept: reads are prepared."""
    return prepared(query, catalog) if isinstance(query, CompiledRead) else query
