"""Hints at the name that was meant."""

from __future__ import annotations

import pytest

from omnigraph.lang.source import suggest_name

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
def test_suggests_the_closest_name_or_lists_a_few(name: str, known: list[str], hint: str | None) -> None:
    assert suggest_name(name, known) == hint
