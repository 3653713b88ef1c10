"""Omnigraph itself, with documents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import omnigraph
from bench import aging, documents

VERSION = omnigraph.__version__
_VECTOR, _TEXT = f"$vector: Vector({documents.DIMENSION})", "$text: String"
_NEAREST, _RELEVANCE = "nearest($d.embedding, $vector)", "bm25($d.body, $text)"
TEXTS = {
    "vector": f"""query q({_VECTOR}) {{
        match {{ $d: Document }}
        return {{ $d.number as number, {_NEAREST} as score }} order {{ score }} limit {documents.BEST}
    }}""",
    "text": f"""query q({_TEXT}) {{
        match {{ $d: Document }}
        return {{ $d.number as number, {_RELEVANCE} as score }} order {{ score desc }} limit {documents.BEST}
    }}""",
    "both, fused": f"""query q({_VECTOR}, {_TEXT}) {{
        match {{ $d: Document }}
        return {{ $d.number as number, rrf({_NEAREST}, {_RELEVANCE}) as score }}
        order {{ score desc }} limit {documents.BEST}
    }}""",
    "both, fused, one hop": f"""query q({_VECTOR}, {_TEXT}) {{
        match {{ $d: Document  $a wrote $d }}
        return {{ $d.number as number, $a.name as author, rrf({_NEAREST}, {_RELEVANCE}) as score }}
        order {{ score desc }} limit {documents.BEST}
    }}""",
}


def make(data: Path, place: Path) -> None:
    """Load all records and build the indexes."""
    with omnigraph.init(place, schema=documents.SCHEMA) as graph:
        graph.load(data / "records.jsonl", mode="append")
        graph.optimize()


def age(data: Path, place: Path, commits: int) -> None:
    """Rewrite documents in small commits."""
    with omnigraph.open(place) as graph:
        aging.age(graph, commits, {"Document": pq.read_table(data / "Document.parquet")})


class Engine:
    """A graph that is open."""

    def __init__(self, place: Path) -> None:
        self._graph = omnigraph.open(place)

    def ask(self, question: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """All rows as tuples; the number of the document comes first."""
        if question == "both":
            return self.ask("vector", parameters) + self.ask("text", parameters)
        names = {"vector": ("vector",), "text": ("text",)}.get(question, ("vector", "text"))
        return self._graph.query(TEXTS[question], {name: parameters[name] for name in names}).tuples()

    def explain(self, question: str, parameters: Mapping[str, Any]) -> str:
        """How a question is answered."""
        return self._graph.explain(TEXTS[question], parameters).text()
