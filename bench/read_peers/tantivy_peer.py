"""Tantivy, an index of texts, for reference."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import tantivy

from bench.documents import BEST

VERSION = version("tantivy")


def make(data: Path, place: Path) -> None:
    """Build the index."""
    place.mkdir()
    writer = tantivy.Index(_schema(), path=str(place)).writer()
    documents = pq.read_table(data / "Document.parquet", columns=["number", "body"])
    for number, body in zip(documents["number"].to_pylist(), documents["body"].to_pylist(), strict=True):
        writer.add_document(tantivy.Document(number=number, body=body))
    writer.commit()
    writer.wait_merging_threads()


class Engine:
    """The index, open."""

    def __init__(self, place: Path) -> None:
        self._index = tantivy.Index(_schema(), path=str(place))
        self._index.reload()
        self._searcher = self._index.searcher()

    def ask(self, question: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """The numbers of the most relevant documents."""
        assert question == "text"
        query = self._index.parse_query(parameters["text"], ["body"])
        hits = self._searcher.search(query, BEST).hits
        return [(self._searcher.doc(address)["number"][0],) for _, address in hits]


def _schema() -> Any:
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("number", stored=True)
    builder.add_text_field("body", tokenizer_name="en_stem")
    return builder.build()
