"""The schema language: text -> catalog, identities of what it declares, and plans for changing it.

To read in this order:

    parser.py, type_syntax.py      text -> the tree of ast.py; printer.py: back
    check.py                       tree -> catalog.py; interfaces.py, constraints.py, annotations.py: rules
    keys.py, defaults.py           key values -> ids, and `@default`
    identity.py                    numbers that types and properties keep through renames
    ir.py, shape.py                a schema as a graph stores it, and the fingerprint of what it means
    planner.py, steps.py           two schemas -> a migration; comparison.py, widening.py: what is the same
    describe.py                    steps in words
"""

from omnigraph.lang.schema.check import build_catalog, compile_schema
from omnigraph.lang.schema.describe import describe, describe_plan
from omnigraph.lang.schema.identity import AcceptedSchema, Identities, Resolution, first_identities, resolve
from omnigraph.lang.schema.parser import parse_schema
from omnigraph.lang.schema.planner import plan_files, plan_migration, plan_resolved
from omnigraph.lang.schema.printer import print_schema
from omnigraph.lang.schema.steps import CHANGE_CODES, STEP_KINDS, MigrationPlan

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
