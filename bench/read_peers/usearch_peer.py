"""usearch, an index of vectors in memory, for reference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import usearch
from usearch.index import Index

from bench.documents import BEST, DIMENSION

VERSION = usearch.__version__
EXPANSION = 128
"""How many candidates a search follows; enough for a recall of 0.98."""


def make(data: Path, place: Path) -> None:
    """Build the index."""
    documents = pq.read_table(data / "Document.parquet")
    vectors = documents["embedding"].combine_chunks().flatten().to_numpy().reshape(-1, DIMENSION)
    index = Index(ndim=DIMENSION, metric="l2sq", dtype="f32", expansion_search=EXPANSION)
    index.add(documents["number"].to_numpy().astype(np.uint64), vectors)
    index.save(str(place))


class Engine:
    """The index, in memory."""

    def __init__(self, place: Path) -> None:
        index: Any = Index.restore(str(place))
        index.expansion_search = EXPANSION
        self._index = index

    def ask(self, question: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """The numbers of the nearest documents."""
        assert question == "vector"
        found = self._index.search(np.asarray(parameters["vector"], dtype=np.float32), BEST)
        return [(int(number),) for number in found.keys]
