"""What a model reads: the description of a graph, and results that fit into its window."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omnigraph.lang.query.compile import compile_query
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.catalog_json import edge_value, node_value
from omnigraph.lang.source import Source
from omnigraph.server.mcp.bounds import HINT, MOST_CHARACTERS, bound_json, bound_text
from omnigraph.server.mcp.description import render_description
from omnigraph.server.mcp.examples import render_examples
from tests.server.running import SCHEMA

RICH = """
node Doc @description("A page of the handbook") {
  slug: String
  lang: String
  @key(slug, lang)
  kind: enum(note, page)
  tags: [String]
  title: String @index
  face: Vector(3) @embed("title")
  raw: Blob?
  at: DateTime
}
node Log { msg: String }
edge Cites: Doc -> Doc { from: String?  weight: F64 }
edge LinksTo: Doc -> Log { weight: F32 }
"""


def types_of(text: str, **rows: int) -> dict[str, Any]:
    catalog = compile_schema(Source(text))
    return {
        "nodes": [node_value(one) for one in catalog.nodes.values()],
        "edges": [edge_value(one) for one in catalog.edges.values()],
        "rows": {name.replace("_", ":"): count for name, count in rows.items()},
    }


@pytest.mark.parametrize(
    ("schema", "rows"),
    [
        (SCHEMA, {}),
        (RICH, {}),
        (RICH, {"node_Log": 5, "edge_LinksTo": 5}),
        ("node Only { name: String }", {}),
    ],
)
def test_examples_compile(schema: str, rows: dict[str, int]) -> None:
    examples = render_examples(types_of(schema, **rows))
    assert len(examples) >= 3
    catalog = compile_schema(Source(schema))
    for example in examples:
        compile_query(example, catalog)


def test_description_has_types_counts_documentation_and_stored_queries() -> None:
    text = render_description(
        types_of(RICH, node_Doc=1200), [{"name": "recent", "description": "New pages"}], "draft"
    )
    for line in (
        "Graph at branch draft",
        "Doc (1,200) - A page of the handbook",
        "  slug: String (key)",
        "  kind: enum(note, page)",
        "  face: Vector(3) (computed from title)",
        "LinksTo (0): Doc -> Log",
        "  recent: New pages",
    ):
        assert line in text.splitlines()


def test_small_results_are_not_touched() -> None:
    assert bound_json(b'{"rows": [1, 2]}') == '{"rows": [1, 2]}'
    assert bound_text("short") == "short"


def test_long_lists_are_cut_with_a_note() -> None:
    body = {"row_count": 9000, "rows": [{"name": f"person {n}"} for n in range(9000)], "columns": ["name"]}
    text = bound_json(json.dumps(body).encode())
    assert len(text) <= MOST_CHARACTERS
    found = json.loads(text)
    shown = len(found["rows"])
    assert found["rows"] == body["rows"][:shown]  # type: ignore[index]
    assert shown > 1000
    assert found["left_out"] == [f"rows: {9000 - shown:,} of 9,000", HINT]
    assert (found["row_count"], found["columns"]) == (9000, ["name"])


def test_long_texts_and_vectors_are_cut_before_rows() -> None:
    rows = [{"text": "y" * 30_000, "vector": [0.5] * 1500} for _ in range(3)]
    found = json.loads(bound_json(json.dumps({"rows": rows}).encode()))
    assert len(found["rows"]) == 3
    assert len(found["rows"][0]["text"]) == 2_003
    assert len(found["rows"][0]["vector"]) == 16
    assert len(found["left_out"]) == 3


def test_one_item_that_is_too_large_is_left_out() -> None:
    nested = {"deep": [{f"k{n}": "v" * 100 for n in range(1000)}]}
    found = json.loads(bound_json(json.dumps(nested).encode()))
    assert found["deep"] == []
    assert found["left_out"][0] == "deep: 1 of 1"


def test_long_text_says_how_much_is_missing() -> None:
    assert bound_text("z" * 50_000).endswith("... 10,000 more characters were left out")
