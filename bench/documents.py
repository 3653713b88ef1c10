"""Documents with vectors in clusters, texts of a vocabulary by Zipf's law, and who wrote them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bench.made import write_lines, write_tables

SEED = 41
DIMENSION = 64
BEST = 10
FUSED_BY = 60
"""The constant of reciprocal rank fusion."""
_K1, _B = 1.2, 0.75

SCHEMA = f"""
node Author {{
  number: I64 @key
  name: String
}}
node Document {{
  number: I64 @key
  body: String @index
  embedding: Vector({DIMENSION}) @index
}}
edge Wrote: Author -> Document
"""


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything there is."""

    documents: int
    authors: int
    words: int
    clusters: int

    @property
    def name(self) -> str:
        return f"documents-{SEED}-{self.documents}-{self.authors}-{self.words}-{self.clusters}"


WHOLE = Size(documents=100_000, authors=5_000, words=30_000, clusters=300)
MIDDLE = Size(documents=20_000, authors=1_000, words=10_000, clusters=100)
SMALL = Size(documents=600, authors=30, words=600, clusters=10)


@dataclass(frozen=True, slots=True)
class Question:
    """A vector near some cluster, and a few words."""

    vector: tuple[float, ...]
    text: str
    words: tuple[int, ...]


def write(size: Size, folder: Path) -> None:
    """All tables as Parquet, and all records as NDJSON beside them."""
    tables = generate(size)
    write_tables(folder, tables)
    lines = folder / "records.jsonl"
    authors, documents, wrote = tables["Author"], tables["Document"], tables["Wrote"]
    write_lines(
        lines,
        ['{"type":"Author","data":{"number":', authors["number"], ',"name":"', authors["name"], '"}}'],
    )
    write_lines(
        lines,
        [
            '{"type":"Document","data":{"number":',
            documents["number"],
            ',"body":"',
            documents["body"],
            '","embedding":[',
            _join_lists(documents["embedding"], ","),
            "]}}",
        ],
    )
    write_lines(lines, ['{"edge":"Wrote","from":"', wrote["src"], '","to":"', wrote["dst"], '"}'])


def generate(size: Size) -> dict[str, pa.Table]:
    """All nodes and edges; the same for the same size."""
    random = np.random.default_rng(SEED)
    vectors = _vectors(random, size, size.documents)
    lengths = random.integers(30, 90, size.documents)
    words = _words(random, size, int(lengths.sum()))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    texts = pa.ListArray.from_arrays(pa.array(offsets), _spell(words))
    return {
        "Author": pa.table(
            {
                "number": np.arange(size.authors),
                "name": [f"Author {number}" for number in range(size.authors)],
            }
        ),
        "Document": pa.table(
            {
                "number": np.arange(size.documents),
                "body": pc.binary_join(texts, " "),
                "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION),
            }
        ),
        "Wrote": pa.table(
            {"src": random.integers(size.authors, size=size.documents), "dst": np.arange(size.documents)}
        ),
    }


def questions(size: Size, count: int) -> list[Question]:
    """What is searched for: a vector of a cluster, and three words that are neither rare nor everywhere."""
    random = np.random.default_rng(SEED + 1)
    vectors = _vectors(random, size, count)
    words = random.integers(20, size.words // 10, (count, 3))
    return [
        Question(tuple(vector.tolist()), " ".join(_spell(chosen).to_pylist()), tuple(chosen.tolist()))
        for vector, chosen in zip(vectors, words, strict=True)
    ]


class Exact:
    """The right answers, by comparing with everything."""

    def __init__(self, folder: Path) -> None:
        documents = pq.read_table(folder / "Document.parquet")
        flat = documents["embedding"].combine_chunks().flatten()
        self._vectors = flat.to_numpy().reshape(-1, DIMENSION).astype(np.float64)
        self._lengths = (self._vectors**2).sum(axis=1)
        self._bodies = documents["body"]
        self._nearest: dict[tuple[float, ...], frozenset[int]] = {}
        self._relevance: dict[Question, NDArray[np.float64]] = {}

    @cached_property
    def _postings(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Words in order with their documents, and the length of every document."""
        split = pc.split_pattern(self._bodies.combine_chunks(), " ")
        lengths = pc.list_value_length(split).to_numpy(zero_copy_only=False).astype(np.int64)
        words = pc.cast(pc.utf8_slice_codeunits(split.flatten(), 2), pa.int64()).to_numpy()
        order = np.argsort(words, kind="stable")
        return words[order], np.repeat(np.arange(len(lengths)), lengths)[order], lengths

    def nearest(self, vector: tuple[float, ...]) -> frozenset[int]:
        """The documents whose vectors are nearest."""
        if vector not in self._nearest:
            distances = self._lengths - 2 * (self._vectors @ np.asarray(vector))
            self._nearest[vector] = frozenset(np.argpartition(distances, BEST)[:BEST].tolist())
        return self._nearest[vector]

    def relevance(self, question: Question) -> NDArray[np.float64]:
        """How relevant every document is."""
        if question not in self._relevance:
            self._relevance[question] = self._judged(question)
        return self._relevance[question]

    def _judged(self, question: Question) -> NDArray[np.float64]:
        words, documents, lengths = self._postings
        scores = np.zeros(len(lengths))
        for word in dict.fromkeys(question.words):
            first, end = np.searchsorted(words, [word, word + 1])
            found, often = np.unique(documents[first:end], return_counts=True)
            rarity = np.log1p((len(lengths) - len(found) + 0.5) / (len(found) + 0.5))
            share = lengths[found] / lengths.mean()
            scores[found] += rarity * often * (_K1 + 1) / (often + _K1 * (1 - _B + _B * share))
        return scores


def _vectors(random: np.random.Generator, size: Size, count: int) -> NDArray[np.float32]:
    centres = np.random.default_rng(SEED).normal(size=(size.clusters, DIMENSION))
    spread = random.normal(scale=0.35, size=(count, DIMENSION))
    return (centres[random.integers(size.clusters, size=count)] + spread).round(4).astype(np.float32)


def _words(random: np.random.Generator, size: Size, count: int) -> NDArray[np.int64]:
    shares = np.cumsum(1 / (np.arange(size.words) + 2.0))
    found: NDArray[np.int64] = np.searchsorted(shares, random.random(count) * shares[-1])
    return found


def _spell(words: NDArray[np.int64]) -> pa.Array:
    """Words with a digit in them, which have no stem and are no stop words."""
    return pc.binary_join_element_wise("zq", pc.cast(pa.array(words), pa.string()), "")


def _join_lists(lists: pa.ChunkedArray, separator: str) -> pa.Array:
    """The items of each list as one text."""
    whole = lists.combine_chunks()
    items = pa.array(np.arange(len(whole) + 1, dtype=np.int32) * DIMENSION)
    return pc.binary_join(pa.ListArray.from_arrays(items, pc.cast(whole.flatten(), pa.string())), separator)
