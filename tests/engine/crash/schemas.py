"""Schema changes for the crash matrix: tables that are made, copied, dropped, rewritten, or stay."""

from __future__ import annotations

from omnigraph import failpoints
from omnigraph.engine.graph.layout import table_path
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.schema_apply.apply import SchemaRequest, apply_schema
from omnigraph.lang.source import Source
from tests.engine.crash.steps import Step, Write, left_at, recovery
from tests.engine.crash.world import SCHEMA, change

EXTENDED = f"""{SCHEMA}
node Place {{ name: String @key  note: String? }}
node Gone {{ name: String @key }}
"""
WANTED = """
node Person { name: String @key  age: I64?  rank: I32? @default(1) }
node Team { name: String @key  title: String? @description("as on the door") }
node Room @rename_from("Place") { name: String @key }
node Floor { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge MemberOf: Person -> Team @card(0..9)
"""
"""What becomes of the extended schema: new, renamed and dropped tables, and other columns."""
DOCUMENTED = SCHEMA.replace("node Team", 'node Team @description("those who work together")')
LARGER = f"{SCHEMA}\nnode Floor {{ name: String @key }}\nedge WorksOn: Team -> Floor"
RENAMED = EXTENDED.replace("node Place", 'node Room @rename_from("Place")')
SMALLER = EXTENDED.partition("node Gone")[0]
WIDER = SCHEMA.replace("age: I32?", "age: I64?")
OTHER_COLUMNS = SCHEMA.replace(
    "{ since: I32? }", '{ from_year: I32? @rename_from("since")  note: String? }'
).replace("title: String?", "title: String?  rank: I32? @default(1)")
FEWER_COLUMNS = SCHEMA.replace("{ since: I32? }", "")


def _applies(schema: str, *, allow_data_loss: bool = False) -> Step:
    return lambda graph: apply_schema(graph, SchemaRequest(Source(schema), allow_data_loss))


def _extend_schema(graph: OpenGraph) -> None:
    _applies(EXTENDED)(graph)
    change(graph, 'insert Place { name: "attic", note: "dusty" }  insert Gone { name: "gone" }')


def _require_no_dropped_tables(graph: OpenGraph) -> None:
    """Nothing is stored any more of types that were dropped for good, or renamed without a property."""
    if "Gone" in graph.schema().catalog.nodes:
        return
    for name in ("Gone", "Place"):
        assert not graph.root.tables.exists(graph.root.layout.table(table_path("node", name))), name


def _require_no_dropped_columns(graph: OpenGraph) -> None:
    """No version of a table has a property any more that was dropped for good."""
    if "since" in graph.schema().catalog.edges["Knows"].properties:
        return
    place = graph.root.layout.table(table_path("edge", "Knows"))
    for version in graph.root.tables.tip(place).versions():
        assert "since" not in graph.root.tables.open(place, version).schema.names, version


TABLES_MADE = failpoints.SCHEMA_APPLY_BEFORE_STAGING_WRITE
STAGED = failpoints.SCHEMA_APPLY_AFTER_STAGING_WRITE
CONFIRMED = failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER
PUBLISHED = failpoints.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT

SCHEMA_CHANGES: dict[str, Write] = {
    "schema-apply-metadata": Write(_applies(DOCUMENTED), again=True),
    "schema-apply-hard": Write(
        _applies(WANTED, allow_data_loss=True),
        _extend_schema,
        again=True,
        requires=_require_no_dropped_tables,
    ),
    "schema-apply-hard-column": Write(
        _applies(FEWER_COLUMNS, allow_data_loss=True), again=True, requires=_require_no_dropped_columns
    ),
    "schema-apply-new-types": Write(_applies(LARGER), again=True),
    "schema-apply-renamed-type": Write(_applies(RENAMED), _extend_schema, again=True),
    "schema-apply-dropped-type": Write(_applies(SMALLER), _extend_schema, again=True),
    "schema-apply-columns": Write(_applies(OTHER_COLUMNS), again=True),
    "schema-apply-dropped-column": Write(_applies(FEWER_COLUMNS), again=True),
    "schema-apply-wider": Write(_applies(WIDER), again=True),
}
ALL_AT_ONCE = Write(_applies(WANTED), _extend_schema, again=True)
RECOVERED_SCHEMA_CHANGES: dict[str, Write] = {
    "recover-schema-back": Write(
        recovery, left_at(TABLES_MADE, _applies(WANTED), _extend_schema), recovers=True
    ),
    "recover-schema-staged": Write(
        recovery, left_at(STAGED, _applies(WANTED), _extend_schema), recovers=True
    ),
    "recover-schema-forward": Write(
        recovery, left_at(CONFIRMED, _applies(WANTED), _extend_schema), recovers=True
    ),
    "recover-schema-published": Write(
        recovery, left_at(PUBLISHED, _applies(WANTED), _extend_schema), recovers=True
    ),
    "recover-schema-hard-forward": Write(
        recovery,
        left_at(CONFIRMED, _applies(WANTED, allow_data_loss=True), _extend_schema),
        recovers=True,
        requires=_require_no_dropped_tables,
    ),
    "recover-schema-hard-published": Write(
        recovery,
        left_at(PUBLISHED, _applies(FEWER_COLUMNS, allow_data_loss=True)),
        recovers=True,
        requires=_require_no_dropped_columns,
    ),
    "recover-schema-metadata": Write(recovery, left_at(CONFIRMED, _applies(DOCUMENTED)), recovers=True),
}
