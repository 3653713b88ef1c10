"""What editors ask, at places that are hard: unfinished texts, mutations, edges, braces in braces."""

from __future__ import annotations

import pytest

from omnigraph.lang.assist.query_assist import complete_query, describe_query_word, find_query_definition
from omnigraph.lang.assist.reading import SchemaPlace
from omnigraph.lang.assist.schema_assist import complete_schema, locate
from omnigraph.lang.query.expressions import FUNCTIONS
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.annotations import ANNOTATIONS
from omnigraph.lang.source import Source

SCHEMA = Source("""\
interface Named { title: String }
node Person implements Named { name: String @key  age: I32?  title: String }
node Team { slug: String @key }
edge Knows: Person -> Person { since: I32? }
edge MemberOf: Person -> Team
""")
CATALOG = compile_schema(SCHEMA)


def cut(marked: str) -> tuple[Source, int]:
    return Source(marked.replace("|", "")), marked.index("|")


@pytest.mark.parametrize(
    ("marked", "labels"),
    [
        ("|", ["query"]),
        ("query q($n: St|", ["String"]),
        ("query q() { match { $p: Person $p.|", ["name", "age", "title"]),
        ("query q() { match { $p: Person $p memberOf $t $t.|", ["slug"]),
        ("query q() { match { $t: Team $p memberOf $t $p.a|", ["age"]),
        ("query q() { match { $a $e:knows $b $e.|", ["since"]),
        ("query q() { match { $a <knows> $b $b.n|", ["name"]),
        ("query q() { match { $a knows{1,3} $b $b.n|", ["name"]),
        ("query q() { match { $t: Team $t m|", ["memberOf", "matches"]),
        ("query q() { match { $p: Person { na|", ["name"]),
        ("query q() { insert Knows { |", ["from", "to", "since"]),
        ("query q() { insert Pe|", ["Person"]),
        ("query q() { update Person set { ag|", ["age"]),
        ("query q() { create Pe|", ["Person"]),
        ("query q() { upsert Knows { s|", ["since"]),
        ("query q() { update Kn|", ["Knows"]),
        ("query q() { update Knows set { si|", ["since"]),
        ("query q() { delete Team where |", ["slug"]),
        ("query q($limit: I32) { match { $p: Person } return { $p.name } limit $l|", ["$limit"]),
        ("query a() { match { $x: Team } return { $x } } query b() { match { $y: Person $|", ["$y"]),
        ("query q() { match { $p: Person } return { cou|", ["count"]),
    ],
)
def test_completion_of_queries(marked: str, labels: list[str]) -> None:
    source, offset = cut(marked)
    found = [item.label for item in complete_query(source, offset, CATALOG)]
    assert [label for label in found if label != "$"] == labels


@pytest.mark.parametrize(
    ("marked", "labels"),
    [
        ("no|", ["node"]),
        ("node A { b: D|", ["DateTime", "Date"]),
        ("node A { b: I32 @un|", ["unique"]),
        ("node A { b: String @te|", ["text"]),
        ("node A { b: String @text(ger|", ["german"]),
        ("node A @merge(pro|", ["property"]),
        ("node A { b: Vector(2) @metric(|", ["l2", "euclidean", "cosine", "dot"]),
        ("node A { x: I32 }\nedge E: A -> |", ["A"]),
        ("interface N { }\nnode A implements |", ["N"]),
    ],
)
def test_completion_of_schemas(marked: str, labels: list[str]) -> None:
    source, offset = cut(marked)
    assert [item.label for item in complete_schema(source, offset)] == labels


def test_every_function_is_offered() -> None:
    offered = {item.label for item in complete_query(*cut("query q() { match { $p: Person  | } }"), CATALOG)}
    assert offered >= set(FUNCTIONS)


def test_every_annotation_that_means_something_is_offered() -> None:
    assert {item.label for item in complete_schema(*cut("node A { b: I32 @|"))} >= set(ANNOTATIONS)


@pytest.mark.parametrize(
    ("marked", "place"),
    [
        ("query q() { insert Per|son { name: 1 } }", SchemaPlace("Person")),
        ("query q() { insert Person { na|me: 1 } }", SchemaPlace("Person", "name")),
        ("query q() { update Person set { a|ge: 1 } where name = 2 }", SchemaPlace("Person", "age")),
        ("query q() { update Person set { age: 1 } where na|me = 2 }", SchemaPlace("Person", "name")),
        ("query q() { match { $a member|Of $t } }", SchemaPlace("MemberOf")),
        ("query q() { match { $a nothing| $t } }", None),
        ("query q() { match { $a: No|where } }", None),
        ("query q() {  |  }", None),
    ],
)
def test_definitions_in_the_schema(marked: str, place: SchemaPlace | None) -> None:
    source, offset = cut(marked)
    assert find_query_definition(source, offset, CATALOG) == place


def test_places_in_the_schema() -> None:
    def text_at(place: SchemaPlace) -> tuple[int, str]:
        found = locate(SCHEMA, place)
        assert found is not None
        return SCHEMA.text.count("\n", 0, found.start), SCHEMA.text[found.start : found.end]

    assert text_at(SchemaPlace("MemberOf")) == (4, "MemberOf")
    assert text_at(SchemaPlace("Person", "title")) == (1, "title")
    assert locate(SCHEMA, SchemaPlace("Nowhere")) is None


def test_functions_are_described() -> None:
    source, offset = cut("query q() { match { $p: Person } return { cou|nt($p) } }")
    found = describe_query_word(source, offset, CATALOG)
    assert found is not None
    assert found.text.startswith("count(e)")
