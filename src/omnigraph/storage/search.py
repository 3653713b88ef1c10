"""What stored indexes answer about texts and vectors, and the one analyser that makes tokens of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import lance
import numpy as np
import pyarrow as pa
from lance.query import MatchQuery
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.storage.tables import Table

ANALYSER: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "base_tokenizer": "simple",
        "language": "English",
        "max_token_length": 40,
        "lower_case": True,
        "stem": True,
        "remove_stop_words": True,
        "ascii_folding": True,
        "with_position": False,
    }
)
"""How an English text becomes tokens. These are Lance's defaults, spelled out so that they stay.

A stored index made in another way than its property declares is not asked: it would change which rows match.
"""

_WORDS_AS_THEY_ARE: Final = {"stem": False, "remove_stop_words": False}
_UNUSUAL: Final[Mapping[str, Mapping[str, Any]]] = {
    "plain": _WORDS_AS_THEY_ARE,
    # Words of Chinese, Japanese and Thai have no spaces between them: dictionaries inside Lance find them.
    "cjk": {**_WORDS_AS_THEY_ARE, "base_tokenizer": "icu/split"},
}

PARTITION_ROWS: Final = 4096
"""Rows that one partition of a vector index should hold; how many partitions are searched leans on it."""

_SENTINEL: Final = "x"  # a word the analyser keeps as it is
_FEWEST_PROBES: Final = 64
_PROBED_SHARE: Final = 2
"""One partition in so many is searched; fewer miss too much of hard data."""
_COMPRESSED_REACH: Final = 20
"""An index of compressed vectors is asked for so many times as many rows, to be compared exactly."""


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """An index of one column that can be trusted with a search."""

    name: str
    kind: str
    indexed_rows: int
    unindexed_rows: int
    """Rows that Lance has to read one by one in every search."""
    deleted_rows: int = 0
    """Rows that it has read and that were deleted or changed, as far as their fragments are still stored."""
    is_current: bool = False
    """Whether it is known that nothing was written since it was built; False where that is not known."""


# --- tokens ----------------------------------------------------------------------------------------


@cache
def analyser_of(language: str) -> Mapping[str, Any]:
    """How a text of a language becomes tokens, as options of a text index."""
    chosen = _UNUSUAL.get(language)
    return MappingProxyType(
        {**ANALYSER, **({"language": language.capitalize()} if chosen is None else chosen)}
    )


@cache
def _analysis(language: str) -> Mapping[str, Any]:
    return {name: value for name, value in analyser_of(language).items() if name != "with_position"}


def analyse(text: str, language: str = "english") -> list[str]:
    """The tokens of a text, in order."""
    return [token.text for token in lance.tokenize(text, **_analysis(language))]


def analyse_words(words: Sequence[str], language: str = "english") -> tuple[NDArray[np.int64], list[str]]:
    """Which of these words gives which token; a word may give none.

    Each word must be ASCII letters and digits only: these are never split, so that the place of a token
    in the text of all words shows which word it came from.
    """
    tokens = lance.tokenize(" ".join([_SENTINEL, *words, _SENTINEL]), **_analysis(language))
    places = np.fromiter((token.position for token in tokens), np.int64, len(tokens))
    assert places[-1] == len(words) + 1, "a word of letters and digits was split"
    return places[1:-1] - 1, [token.text for token in tokens[1:-1]]


# --- texts -----------------------------------------------------------------------------------------


def find_text_index(table: Table, column: str, language: str = "english") -> StoredIndex | None:
    """The text index of a column, if it gives the same answers as reading all texts in this language would.

    One of several segments is not trusted: rows keep their row id when they are updated, and the segment
    that read the old text goes on finding it.
    """
    for found in _describe_indexes(table, column):
        if (
            found.index_type.upper() == "INVERTED"
            and len(found.segments) == 1
            and has_analyser(found.details, language)
        ):
            return _describe_index(table, found)
    return None


def search_text(
    table: Table, column: str, text: str, limit: int | None = None
) -> tuple[NDArray[np.uint64], NDArray[np.float64]] | None:
    """Row ids and relevance of the rows that share a token with the text, the most relevant ones first.

    None when the files of an index are missing.
    """
    asked = {"columns": ["_rowid", "_score"], "full_text_query": MatchQuery(text, column), "limit": limit}
    found = table.run_with_indexes("search", lambda indexed: _run_search(table, asked) if indexed else None)
    if found is None:
        return None
    return found.column("_rowid").to_numpy(), found.column("_score").to_numpy().astype(np.float64)


def has_analyser(details: Mapping[str, Any], language: str) -> bool:
    """Whether a text index, as Lance describes it, makes tokens as texts of this language have them."""
    plain = {"custom_stop_words": None, "split_identifiers": False, "split_on_numerics": False}
    return all(details.get(name) == wanted for name, wanted in {**_analysis(language), **plain}.items())


# --- vectors ---------------------------------------------------------------------------------------


def find_vector_index(table: Table, column: str, metric: str = "l2") -> StoredIndex | None:
    """The vector index of a column, if it compares by this metric."""
    for found in _describe_indexes(table, column):
        if found.index_type.upper().startswith("IVF") and found.details.get("metric_type") == metric.upper():
            return _describe_index(table, found)
    return None


def search_vectors(
    table: Table, index: StoredIndex, column: str, query: NDArray[np.float32], count: int, metric: str = "l2"
) -> tuple[NDArray[np.uint64], pa.Array] | None:
    """Row ids and vectors of the nearest `count` rows or more, in no order, as far as the index finds them.

    Rows that the index does not know are compared as well; rows without a vector are left out. None when the
    files of an index are missing.
    """
    reach = count if index.kind == "IVF_FLAT" else count * _COMPRESSED_REACH
    partitions = index.indexed_rows // PARTITION_ROWS
    wanted = {
        "column": column,
        "q": query,
        "k": min(reach, index.indexed_rows + index.unindexed_rows),
        "nprobes": max(_FEWEST_PROBES, partitions // _PROBED_SHARE),
        "metric": metric.upper(),
    }
    asked = {"columns": ["_rowid", "_distance", column], "nearest": wanted}
    found = table.run_with_indexes("search", lambda indexed: _run_search(table, asked) if indexed else None)
    if found is None:
        return None
    return found.column("_rowid").to_numpy(), found.column(column).combine_chunks()


def _run_search(table: Table, asked: Mapping[str, Any]) -> pa.Table:
    return table.native.scanner(**asked).to_table()


def _describe_indexes(table: Table, column: str) -> list[Any]:
    with table.access.call("describe_indexes", table.uri):
        return [found for found in table.native.describe_indices() if found.field_names == [column]]


def _describe_index(table: Table, found: Any) -> StoredIndex:
    covered = {int(fragment) for segment in found.segments for fragment in segment.fragment_ids}
    indexed = unindexed = deleted = 0
    for fragment in table.native.get_fragments():
        rows = fragment.metadata.num_rows
        if fragment.fragment_id in covered:
            indexed += rows
            deleted += fragment.num_deletions
        else:
            unindexed += rows
    # An index over version v is committed as version v + 1.
    current = all(
        segment.base_id is None and segment.dataset_version_at_last_update + 1 == table.version
        for segment in found.segments
    )
    kind = found.index_type.upper()
    return StoredIndex(found.name, kind, indexed, unindexed, deleted, current and not unindexed)
