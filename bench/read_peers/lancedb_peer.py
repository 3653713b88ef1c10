"""LanceDB, tables with search by vector and by text; fusion is done here, and a hop is two look-ups."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow.parquet as pq
from lancedb.rerankers import RRFReranker

from bench.documents import BEST, FUSED_BY

VERSION = lancedb.__version__


def make(data: Path, place: Path) -> None:
    """Copy the tables and build the indexes."""
    database = lancedb.connect(str(place))
    names = ("Author", "Document", "Wrote")
    tables = {name: database.create_table(name, pq.read_table(data / f"{name}.parquet")) for name in names}
    documents = tables["Document"]
    partitions = max(2, int(np.sqrt(documents.count_rows())))
    documents.create_index(
        metric="l2", index_type="IVF_FLAT", num_partitions=partitions, vector_column_name="embedding"
    )
    documents.create_fts_index("body")
    documents.create_scalar_index("number")
    tables["Wrote"].create_scalar_index("dst")
    tables["Author"].create_scalar_index("number")


class Engine:
    """Tables that are open."""

    def __init__(self, place: Path) -> None:
        database = lancedb.connect(str(place))
        self._documents = database.open_table("Document")
        self._wrote = database.open_table("Wrote")
        self._authors = database.open_table("Author")

    def ask(self, question: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """All rows as tuples; the number of the document comes first."""
        match question:
            case "vector":
                return [(number,) for number in self._nearest(parameters)]
            case "text":
                return [(number,) for number in self._relevant(parameters)]
            case "both":
                return [(number,) for number in self._nearest(parameters) + self._relevant(parameters)]
            case "both, fused":
                return [(number,) for number in self._fused(parameters)]
            case "both, its own fusion":
                return [(number,) for number in self._hybrid(parameters)]
        found = self._fused(parameters)
        wrote = self._wrote.search().where(f"dst IN ({_join_numbers(found)})").to_arrow()
        author_of = dict(zip(wrote["dst"].to_pylist(), wrote["src"].to_pylist(), strict=True))
        authors = self._authors.search().where(f"number IN ({_join_numbers(author_of.values())})").to_arrow()
        name_of = dict(zip(authors["number"].to_pylist(), authors["name"].to_pylist(), strict=True))
        return [(number, name_of[author_of[number]]) for number in found]

    def _nearest(self, parameters: Mapping[str, Any]) -> list[int]:
        search: Any = self._documents.search(parameters["vector"], vector_column_name="embedding")
        probes = search.nprobes(parameters["probes"]).limit(BEST).select(["number", "_distance"])
        return probes.to_arrow()["number"].to_pylist()  # type: ignore[no-any-return]

    def _relevant(self, parameters: Mapping[str, Any]) -> list[int]:
        search = self._documents.search(parameters["text"], query_type="fts", fts_columns="body")
        found = search.limit(BEST).select(["number", "_score"]).to_arrow()
        return found["number"].to_pylist()  # type: ignore[no-any-return]

    def _fused(self, parameters: Mapping[str, Any]) -> list[int]:
        scores: dict[int, float] = {}
        for ranked in (self._nearest(parameters), self._relevant(parameters)):
            for rank, number in enumerate(ranked):
                scores[number] = scores.get(number, 0.0) + 1 / (FUSED_BY + rank + 1)
        return sorted(scores, key=lambda number: -scores[number])[:BEST]

    def _hybrid(self, parameters: Mapping[str, Any]) -> list[int]:
        search = self._documents.search(
            query_type="hybrid", vector_column_name="embedding", fts_columns="body"
        )
        asked: Any = search.vector(parameters["vector"]).text(parameters["text"])
        found = (
            asked.nprobes(parameters["probes"])
            .rerank(RRFReranker(FUSED_BY))
            .limit(BEST)
            .select(["number"])
            .to_arrow()
        )
        return found["number"].to_pylist()  # type: ignore[no-any-return]


def _join_numbers(numbers: Any) -> str:
    return ", ".join(map(str, numbers))
