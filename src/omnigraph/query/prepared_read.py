"""A compiled read with everything that can be worked out before parameters and a snapshot are known."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.compile import CompiledMutation, CompiledQuery, CompiledRead
from omnigraph.lang.query.parameters import Decoder
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.types import ValueType
from omnigraph.query.key_lookup import PointLookup, find_point_lookup
from omnigraph.query.pattern import PlanFacts, find_tables
from omnigraph.query.plan_runner import output_columns, result_schema


@dataclass(frozen=True, slots=True)
class PreparedRead:
    """A read, ready to run with any parameters on any snapshot of its schema."""

    query: CompiledRead
    decode: Decoder
    tables: Mapping[str, str]
    """The key of the table of each variable."""
    schema: pa.Schema
    types: tuple[ValueType, ...]
    """The types of the result columns."""
    facts: PlanFacts
    point_lookup: PointLookup | None
    """Set when the read returns properties of one node by its key."""

    @property
    def name(self) -> str:
        """The name of the query."""
        return self.query.name

    @property
    def plan(self) -> p.Plan:
        """The logical plan of the query."""
        return self.query.plan


def prepare_read(query: CompiledRead, catalog: Catalog) -> PreparedRead:
    """Prepare a compiled read."""
    plan = query.plan
    schema = result_schema(plan)
    return PreparedRead(
        query,
        Decoder(query.parameters),
        find_tables(plan),
        schema,
        tuple(output.term.type for output in output_columns(plan)),
        PlanFacts(),
        find_point_lookup(plan, schema, catalog),
    )


def prepare_query(query: CompiledQuery, catalog: Catalog) -> PreparedRead | CompiledMutation:
    """Prepare a compiled query for the query cache; mutations stay as they are."""
    return prepare_read(query, catalog) if isinstance(query, CompiledRead) else query
