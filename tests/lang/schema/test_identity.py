"""Numbers of types and properties over the life of a graph."""

from __future__ import annotations

from omnigraph.lang.schema import AcceptedSchema, compile_schema, first_identities, plan_migration, resolve


def begin(text: str) -> AcceptedSchema:
    catalog = compile_schema(text)
    return AcceptedSchema(catalog, first_identities(catalog))


def migrate(accepted: AcceptedSchema, text: str) -> AcceptedSchema:
    desired = compile_schema(text)
    return AcceptedSchema(desired, resolve(accepted, desired).identities)


def test_first_numbers_follow_kind_and_name_and_not_the_text() -> None:
    found = begin(
        "edge E: B -> A node B { z: I32 a: I32 } node A { m: I32 } interface I { i: I32 }"
    ).known_identities
    assert found.types == {("interface", "I"): 1, ("node", "A"): 2, ("node", "B"): 3, ("edge", "E"): 4}
    assert found.properties == {
        ("interface", "I", "i"): 1,
        ("node", "A", "m"): 2,
        ("node", "B", "a"): 3,
        ("node", "B", "z"): 4,
    }
    assert (found.next_type, found.next_property) == (5, 5)


def test_hints_mean_nothing_to_a_new_graph() -> None:
    hinted = begin('node P @rename_from("Q") { a: I32 @rename_from("zz") }')
    assert hinted.known_identities == begin("node P { a: I32 }").known_identities


def test_a_renamed_thing_keeps_its_number() -> None:
    before = begin("node P { a: I32? b: I32? } edge E: P -> P { w: I32? }")
    after = migrate(
        before,
        'node Q @rename_from("P") { z: I32? @rename_from("a") b: I32? }'
        "edge E: Q -> Q { x: I32? @rename_from(w) }",
    )
    old, new = before.known_identities, after.known_identities
    assert new.types["node", "Q"] == old.types["node", "P"]
    assert new.properties["node", "Q", "z"] == old.properties["node", "P", "a"]
    assert new.properties["edge", "E", "x"] == old.properties["edge", "E", "w"]
    assert new.next_property == old.next_property


def test_a_name_that_comes_back_is_a_new_thing() -> None:
    first = begin("node P { a: I32? } node Q { }")
    without = migrate(first, "node P { }")
    again = migrate(without, "node P { a: I32? } node Q { }")
    assert (
        again.known_identities.properties["node", "P", "a"]
        > first.known_identities.properties["node", "P", "a"]
    )
    assert again.known_identities.types["node", "Q"] > first.known_identities.types["node", "Q"]
    assert [step.kind for step in plan_migration(without, again.catalog).steps] == [
        "add_property",
        "add_type",
    ]


def test_numbers_are_never_given_twice() -> None:
    accepted, seen = begin("node P { a: I32? }"), set()
    for _ in range(3):
        seen.add(accepted.known_identities.properties["node", "P", "a"])
        accepted = migrate(migrate(accepted, "node P { }"), "node P { a: I32? }")
    assert len(seen) == 3


def test_composite_ids_keep_their_order_through_renames() -> None:
    before = begin("node M { tenant: String slot: I32 @key(tenant, slot) }")
    assert before.known_identities.in_order("node", "M", before.catalog.nodes["M"].key) == ("slot", "tenant")
    after = migrate(before, 'node M { account: String @rename_from("tenant") slot: I32 @key(account, slot) }')
    assert after.known_identities.in_order("node", "M", after.catalog.nodes["M"].key) == ("slot", "account")


def test_a_later_property_comes_after_the_earlier_ones() -> None:
    after = migrate(begin("node M { b: I32 c: I32 }"), "node M { a: I32? b: I32 c: I32 }")
    assert after.known_identities.in_order("node", "M", ("a", "b", "c")) == ("b", "c", "a")
