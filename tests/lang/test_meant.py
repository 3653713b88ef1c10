"""Hints at the name that was meant."""

from __future__ import annotations

import pytest

from omnigraph.lang.meant import may_be

KNOWS = ["Person", "Team", "MemberOf"]


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("Persn", KNOWS, "did you mean `Person`?"),
        ("memberof", KNOWS, "did you mean `MemberOf`?"),
        ("Zebra", KNOWS, "it may be: MemberOf, Person, Team"),
        ("Other", ["Z", "K", "Z"], "it may be: K, Z"),
        ("Zebra", [], None),
        ("Zebra", [f"Type{number}" for number in range(21)], None),
        ("x" * 10_000, KNOWS, "it may be: MemberOf, Person, Team"),
    ],
)
def test_a_name_spelt_alike_is_told_else_all_if_they_are_few(
    name: str, known: list[str], hint: str | None
) -> None:
    assert may_be(name, known) == hint
