"""The schema language: text -> catalog, identities of what it declares, and plans for changing it.

Read in this order:

    schema_parser.py, type_syntax.py     text -> the tree of schema_ast.py; schema_printer.py: back
    check.py                             tree -> catalog.py; interfaces.py, constraints.py, annotations.py
    keys.py                              key values -> ids
    identity.py                          numbers that types and properties keep through renames
    ir.py                                a schema as a graph stores it, and as earlier releases did
    catalog_json.py                      a catalog as JSON values, its fingerprint and its rules
    migration_planner.py, migration_steps.py   two schemas -> a migration
"""

from omnigraph.lang.schema.check import build_catalog, compile_schema
from omnigraph.lang.schema.identity import AcceptedSchema, Identities, Resolution, first_identities, resolve
from omnigraph.lang.schema.migration_planner import plan_files, plan_migration, plan_resolved
from omnigraph.lang.schema.migration_steps import (
    CHANGE_CODES,
    STEP_KINDS,
    MigrationPlan,
    describe,
    describe_plan,
)
from omnigraph.lang.schema.schema_parser import parse_schema
from omnigraph.lang.schema.schema_printer import print_schema

__all__ = [
    "CHANGE_CODES",
    "STEP_KINDS",
    "AcceptedSchema",
    "Identities",
    "MigrationPlan",
    "Resolution",
    "build_catalog",
    "compile_schema",
    "describe",
    "describe_plan",
    "first_identities",
    "parse_schema",
    "plan_files",
    "plan_migration",
    "plan_resolved",
    "print_schema",
    "resolve",
]
