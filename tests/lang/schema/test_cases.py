"""Every case of `tests/lang/cases/*.pgt`."""

from __future__ import annotations

import json
import re

import pytest

from omnigraph.errors import CompileError, ParseError, SchemaIdentityError
from omnigraph.lang.schema import (
    AcceptedSchema,
    compile_schema,
    describe_plan,
    first_identities,
    parse_schema,
    plan_files,
    print_schema,
    resolve,
)
from omnigraph.lang.schema.catalog import Annotation, Catalog, EdgeType, Interface, NodeType, Property
from omnigraph.lang.schema.keys import compose_id, render_scalar
from omnigraph.lang.source import Source
from tests.lang.casefile import Case, cases_in

CASES = cases_in("*.pgt")
SECTIONS = {
    ("schema", "catalog"), ("schema", "ok"), ("schema", "error"), ("schema", "same"), ("schema", "different"),
    ("schema", "printed"), ("schema", "ids"), ("from", "to", "plan"), ("from", "to", "hard plan"),
    ("from", "to", "refused"), ("from", "to", "described"), ("from", "to", "ignored"),
}  # fmt: skip


def text(case: Case, section: str) -> str:
    found = case.section(section)
    assert found is not None, f"{case} has no section {section}"
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_schema_means_what_its_case_says(case: Case) -> None:
    sections = tuple(name for name, _ in case.sections)
    assert sections in SECTIONS, f"{case.path.name}:{case.line}: sections {sections}"
    CHECKS[sections[-1]](case)


def check_ok(case: Case) -> None:
    compile_schema(text(case, "schema"))


def check_catalog(case: Case) -> None:
    assert summary(compile_schema(text(case, "schema"))) == text(case, "catalog")


def check_error(case: Case) -> None:
    expected = text(case, "error").splitlines()
    wanted = expected.pop(0) if expected[0] in ("CatalogError", "ParseError") else "ParseError"
    with pytest.raises(CompileError) as caught:
        compile_schema(text(case, "schema"))
    found = [f"{each.line}:{each.column} {each.message}" for each in caught.value.diagnostics]
    assert type(caught.value).__name__ == wanted, found
    assert len(found) == len(expected), found
    for actual, line in zip(found, expected, strict=True):
        place_and_part = re.fullmatch(r"(\d+:\d+ )?(.*)", line)
        assert place_and_part is not None
        place, part = place_and_part.groups()
        assert part in actual, found
        assert actual.startswith(place or ""), found


def check_same(case: Case) -> None:
    one, other = compile_schema(text(case, "schema")), compile_schema(text(case, "same"))
    assert one.fingerprint == other.fingerprint
    assert plan_files(one, other).steps == ()


def check_different(case: Case) -> None:
    one, other = compile_schema(text(case, "schema")), compile_schema(text(case, "different"))
    assert one.fingerprint != other.fingerprint


def check_printed(case: Case) -> None:
    tree = parse_schema(Source(text(case, "schema")))
    assert print_schema(tree) == text(case, "printed") + "\n"
    assert parse_schema(Source(print_schema(tree))) == tree


def check_ids(case: Case) -> None:
    catalog = compile_schema(text(case, "schema"))
    identities = first_identities(catalog)
    for line in text(case, "ids").splitlines():
        name, rest = line.split(" ", 1)
        values, end = json.JSONDecoder().raw_decode(rest)
        node = catalog.nodes[name]
        parts = [
            render_scalar(values[column], node.properties[column].type)
            for column in identities.in_order("node", name, node.key)
        ]
        assert compose_id(parts) == rest[end:].strip(), line


def check_plan(case: Case, *, allow_data_loss: bool = False) -> None:
    old, new = compile_schema(text(case, "from")), compile_schema(text(case, "to"))
    plan = plan_files(old, new, allow_data_loss).to_json()
    expected = [json.loads(line) for line in text(case, case.sections[-1][0]).splitlines()]
    assert plan["steps"] == expected
    assert plan["supported"] == all(step["kind"] != "unsupported_change" for step in expected)


def check_hard_plan(case: Case) -> None:
    check_plan(case, allow_data_loss=True)


def check_refused(case: Case) -> None:
    with pytest.raises(SchemaIdentityError) as caught:
        plan_files(compile_schema(text(case, "from")), compile_schema(text(case, "to")))
    assert text(case, "refused") in caught.value.message
    assert caught.value.message.startswith("schema identity resolution failed: ")


def check_described(case: Case) -> None:
    plan = plan_files(compile_schema(text(case, "from")), compile_schema(text(case, "to")))
    assert describe_plan(plan) == text(case, "described").splitlines()


def check_ignored(case: Case) -> None:
    old = compile_schema(text(case, "from"))
    found = resolve(AcceptedSchema(old, first_identities(old)), compile_schema(text(case, "to")))
    assert list(found.ignored_hints) == text(case, "ignored").splitlines()


CHECKS = {
    "ok": check_ok,
    "catalog": check_catalog,
    "error": check_error,
    "same": check_same,
    "different": check_different,
    "printed": check_printed,
    "ids": check_ids,
    "plan": check_plan,
    "hard plan": check_hard_plan,
    "refused": check_refused,
    "described": check_described,
    "ignored": check_ignored,
}


def summary(catalog: Catalog) -> str:
    lines = []
    for kind, owner in catalog.owners():
        lines.append(f"{kind} {owner.name}{header(owner)}")
        lines += [f"  {member(found)}" for found in owner.properties.values()]
    return "\n".join(lines)


def header(owner: Interface | NodeType | EdgeType) -> str:
    if isinstance(owner, Interface):
        return ""
    parts = []
    if isinstance(owner, EdgeType):
        card = owner.cardinality
        parts.append(f": {owner.source} -> {owner.target} {bounds(card.minimum, card.maximum)}")
    if owner.key:
        parts.append(f" key({', '.join(owner.key)})")
    parts += [f" unique({', '.join(each.columns)})" for each in owner.uniques]
    parts += [f" index({', '.join(each.columns)})" for each in owner.indexes]
    if isinstance(owner, NodeType):
        parts += [f" range({each.column}, {bounds(each.minimum, each.maximum)})" for each in owner.ranges]
        parts += [f" check({each.column}, {json.dumps(each.pattern)})" for each in owner.checks]
        parts += [f" implements {', '.join(owner.implements)}"] if owner.implements else []
    return "".join([*parts, *map(annotation, owner.annotations)])


def bounds(minimum: float | None, maximum: float | None) -> str:
    return "..".join("" if bound is None else str(bound) for bound in (minimum, maximum))


def member(found: Property) -> str:
    embed = ""
    if found.embed:
        model = f", model={found.embed.model}" if found.embed.model else ""
        embed = f" embed({found.embed.source}{model})"
    origin = (
        f" {'from' if found.inherited else 'also in'} {', '.join(found.interfaces)}"
        if found.interfaces
        else ""
    )
    return f"{found.name}: {found.type}{embed}{''.join(map(annotation, found.annotations))}{origin}"


def annotation(found: Annotation) -> str:
    if found.value is None:
        return f" @{found.name}"
    options = "".join(f", {name}={json.dumps(value)}" for name, value in found.arguments)
    return f" @{found.name}({json.dumps(found.value)}{options})"


def test_a_refused_schema_is_a_compile_error_with_prefix() -> None:
    with pytest.raises(ParseError, match=r"^parse error: @key property P\.k cannot be nullable"):
        compile_schema("node P { k: String? @key }")
