"""What holds for every schema, tried on generated ones."""

from __future__ import annotations

import copy
import gc
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import CompileError, SchemaIdentityError
from omnigraph.lang.schema import (
    STEP_KINDS,
    AcceptedSchema,
    build_catalog,
    compile_schema,
    describe,
    first_identities,
    parse_schema,
    plan_files,
    plan_migration,
    print_schema,
    resolve,
    schema_ast,
)
from omnigraph.lang.schema.identity import follow
from omnigraph.lang.schema.ir import (
    compile_with_ir,
    has_same_meaning,
    ir_hash,
    legacy_hash,
    legacy_ir,
    read_legacy,
    render,
)
from omnigraph.lang.source import Source
from tests.examples import EXAMPLES
from tests.lang.casefile import cases_in
from tests.lang.schema.strategies import mutate_text, shuffled_tokens, trees, valid_schemas

pytestmark = pytest.mark.fuzz
twice = settings(max_examples=2 * EXAMPLES)


@contextmanager
def hang_guard() -> Iterator[None]:
    """Fail when the block takes more than a second of this process's own time."""

    def give_up(*_: object) -> None:
        raise AssertionError("longer than a second")

    before = signal.signal(signal.SIGVTALRM, give_up)
    # A long run keeps many examples; collecting those is not the compiler's time.
    gc.disable()
    signal.setitimer(signal.ITIMER_VIRTUAL, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        gc.enable()


def failure_of(text: str) -> CompileError | None:
    """What is wrong with a text; any other exception, or no answer in time, fails the test."""
    with hang_guard():
        try:
            compile_schema(text)
        except CompileError as error:
            return error
    return None


def accept(file: schema_ast.SchemaFile) -> AcceptedSchema:
    catalog = build_catalog(file, Source(print_schema(file)))
    return AcceptedSchema(catalog, first_identities(catalog))


@twice
@given(trees)
def test_a_printed_tree_parses_back_to_itself(tree: schema_ast.SchemaFile) -> None:
    printed = print_schema(tree)
    again = parse_schema(Source(printed))
    assert again == tree
    assert print_schema(again) == printed


@given(valid_schemas())
def test_a_valid_schema_compiles_from_its_text(file: schema_ast.SchemaFile) -> None:
    printed = print_schema(file)
    assert compile_schema(printed) == build_catalog(file, Source(printed))


@given(valid_schemas(), st.randoms(use_true_random=False))
def test_order_does_not_change_the_meaning(file: schema_ast.SchemaFile, random: Any) -> None:
    declarations = list(file.declarations)
    random.shuffle(declarations)
    one, other = accept(file), accept(schema_ast.SchemaFile(tuple(declarations)))
    assert one.catalog.fingerprint == other.catalog.fingerprint
    assert one.identities == other.identities


@given(valid_schemas())
def test_the_compiled_form_follows_from_the_text(file: schema_ast.SchemaFile) -> None:
    text = print_schema(file)
    catalog, compiled = compile_with_ir(text)
    again = json.loads(render(compiled, indent=2))
    assert again == compiled
    assert ir_hash(again) == ir_hash(compiled)
    assert has_same_meaning(again, compiled)
    assert catalog.fingerprint == accept(file).catalog.fingerprint


@given(valid_schemas())
def test_the_form_of_earlier_releases_is_read(file: schema_ast.SchemaFile) -> None:
    accepted = accept(file)
    stored = json.loads(json.dumps(legacy_ir(accepted)))
    assert read_legacy(stored) == (accepted.catalog.fingerprint, accepted.identities)
    assert legacy_hash(stored) == legacy_hash(legacy_ir(accepted))


@given(valid_schemas(), valid_schemas())
def test_identities_follow_as_a_change_gives_them(
    one: schema_ast.SchemaFile, other: schema_ast.SchemaFile
) -> None:
    before, after = accept(one), accept(other).catalog
    found = follow(before.known_identities, after)
    numbers = [*found.properties.values()]
    assert len(set(numbers)) == len(numbers)
    try:
        assert found == resolve(before, after).identities
    except SchemaIdentityError:
        return


@given(valid_schemas())
def test_a_schema_needs_no_migration_to_itself(file: schema_ast.SchemaFile) -> None:
    accepted = accept(file)
    assert plan_migration(accepted, accepted.catalog).steps == ()
    assert resolve(accepted, accepted.catalog).identities == accepted.identities


@given(valid_schemas(), valid_schemas(), st.booleans())
def test_any_two_schemas_have_a_plan_or_a_bad_hint(
    one: schema_ast.SchemaFile, other: schema_ast.SchemaFile, hard: bool
) -> None:
    old, new = accept(one).catalog, accept(other).catalog
    try:
        plan = plan_files(old, new, hard)
    except SchemaIdentityError:
        return
    assert {step.kind for step in plan.steps} <= set(STEP_KINDS)
    assert json.loads(json.dumps(plan.to_json()))["supported"] == plan.supported
    assert all("\n" not in describe(step) for step in plan.steps)
    assert (plan.steps == ()) == (old.fingerprint == new.fingerprint)


SCHEMAS = [
    text for case in cases_in("*.pgt") for name, text in case.sections if name in ("schema", "from", "to")
]


@twice
@given(st.integers(0, 2**64), st.sampled_from([mutate_text, mutate_text, mutate_text, shuffled_tokens]))
def test_a_broken_text_is_a_catalog_or_a_compile_error(
    seed: int, change: Callable[[str, Random], str]
) -> None:
    random = Random(seed)
    broken = change(random.choice(SCHEMAS), random)
    error = failure_of(broken)
    if error:
        assert 1 <= len(error.diagnostics) <= 20
        assert all(1 <= each.line <= broken.count("\n") + 1 for each in error.diagnostics)
        assert error.render().startswith("error")


@given(st.text(max_size=300))
def test_random_text_is_a_catalog_or_a_compile_error(text: str) -> None:
    error = failure_of(text)
    assert error is None or error.diagnostics


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(valid_schemas(), st.lists(st.tuples(st.integers(0, 10**6), st.none() | JSON), min_size=1, max_size=3))
def test_a_broken_stored_form_is_a_known_error(
    file: schema_ast.SchemaFile, changes: list[tuple[int, Any]]
) -> None:
    stored = copy.deepcopy(legacy_ir(accept(file)))
    for place, replacement in changes:
        places = list(_places(stored))
        container, key = places[place % len(places)]
        container[key] = replacement
    try:
        read_legacy(stored)
    except ValueError:
        return


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from _places(value[key])
