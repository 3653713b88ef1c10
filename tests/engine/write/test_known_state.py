"""A write to a bucket is prepared on the state that its process knows; an outdated one shows in no answer."""

from __future__ import annotations

import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.storage.location import Location
from tests.storage.conftest import s3_endpoint, s3_root

pytestmark = pytest.mark.s3
__all__ = ["s3_endpoint", "s3_root"]

SCHEMA = """
node Person { name: String @key  age: I32? }
node Team { name: String @key }
edge In: Person -> Team
"""


@pytest.fixture
def pair(s3_root: Location) -> tuple[og.Graph, og.Graph]:
    """Two handles of one graph; the first has written, so that it knows a state."""
    first = og.init(s3_root.uri, schema=SCHEMA)
    second = og.open(s3_root.uri)
    for one, name in ((first, "ada"), (second, "bo"), (first, "cy")):
        one.mutate(f'query q() {{ insert Person {{ name: "{name}", age: 1 }} }}')
    return first, second


def ages(graph: og.Graph) -> dict[str, int]:
    found = graph.query("query q() { match { $p: Person } return { $p.name as name, $p.age as age } }")
    return {str(row["name"]): int(str(row["age"])) for row in found}


def test_an_update_of_rows_that_another_process_wrote_since_is_no_conflict(
    pair: tuple[og.Graph, og.Graph],
) -> None:
    first, second = pair
    second.mutate('query q() { update Person set { age: 2 } where name = "ada" }')
    done = first.mutate("query q() { update Person set { age: 7 } where age = 2 }")
    assert done.affected_nodes == 1
    assert ages(first) == {"ada": 7, "bo": 1, "cy": 1}


def test_nothing_to_do_and_refusals_are_found_on_the_current_state(pair: tuple[og.Graph, og.Graph]) -> None:
    first, second = pair
    second.mutate('query q() { update Person set { age: 3 } where name = "bo" }')
    assert first.mutate("query q() { update Person set { age: 4 } where age = 3 }").affected_nodes == 1
    second.mutate('query q() { insert Team { name: "dev" } }')
    linked = first.mutate('query q() { insert In { from: "ada", to: "dev" } }')
    assert linked.affected_edges == 1, "the end is not in the state that this process knew"
    with pytest.raises(errors.OmnigraphError, match="ghost"):
        first.mutate('query q() { insert In { from: "ada", to: "ghost" } }')


def test_a_condition_is_checked_on_the_current_head(pair: tuple[og.Graph, og.Graph]) -> None:
    first, second = pair
    known = first.snapshot().id
    second.mutate('query q() { insert Team { name: "ops" } }')
    with pytest.raises(errors.PreconditionFailed):
        first.mutate('query q() { insert Team { name: "dev" } }', if_commit=known)
    head = second.snapshot().id
    done = first.mutate('query q() { insert Team { name: "dev" } }', if_commit=head)
    assert done.affected_nodes == 1


def test_a_write_follows_a_schema_that_another_process_applied(pair: tuple[og.Graph, og.Graph]) -> None:
    first, second = pair
    second.apply_schema(SCHEMA + "node Log { text: String }\n")
    first.mutate('query q() { insert Log { text: "x" } }')
    first.mutate('query q() { insert Person { name: "dan", age: 4 } }')
    assert ages(second)["dan"] == 4
