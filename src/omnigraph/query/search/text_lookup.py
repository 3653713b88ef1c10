"""Finding texts: in a stored index while it is right and enough, else in one made in memory."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.query.frame import Positions
from omnigraph.query.read_cache import ReadCache
from omnigraph.query.rows import Identity, Rows
from omnigraph.query.search.ranking import round_scores
from omnigraph.query.search.text_index import Check, Mask, TextIndex, never_stop
from omnigraph.storage.search import StoredIndex, analyse, find_text_index, search_text

_MOST_UNINDEXED = 1000
"""Texts that a stored index may not know: each search reads all of them again, about 8 us a text."""
_EXACT_TEXTS = 1 << 15
"""Up to so many texts an index in memory takes a quarter of a second, so that scores are always exact."""
_WARM = 8
"""After so many searches of one version an index in memory pays, which answers wide searches sooner."""
_TEXT_BYTES = 256  # of a text and its part of an index in memory, about
_WARM_SHARE = 4  # one part in so many of the memory may go to an index that is only faster
_SPARE = 64


@dataclass(frozen=True, slots=True)
class TextColumn:
    """The texts of one property, and how they become tokens."""

    rows: Rows
    name: str
    language: str = "english"

    def key(self, what: str, of: Identity | None = None) -> Hashable:
        """The name in memory of what belongs to this column at this version, or at another one."""
        return (*(of or self.rows.identity), what, self.name, self.language)

    def analyse(self, text: str) -> list[str]:
        """The tokens of a text to look for."""
        return analyse(text, self.language)

    def values(self) -> pa.Array:
        """The texts by position."""
        return self.rows.column(self.name)

    def find_stored_index(self) -> StoredIndex | None:
        """The stored index, if it makes tokens as this column has them."""
        return find_text_index(self.rows.table, self.name, self.language)


class TextLookup:
    """Looks texts up for one request."""

    def __init__(self, memory: ReadCache, check: Check = never_stop) -> None:
        self._memory = memory
        self._check = check
        self._indexes: dict[Hashable, TextIndex | None] = {}
        self.how = ""
        """Where the last text was looked for, for `explain`."""

    def matches(self, column: TextColumn, text: str, edits: int) -> Mask:
        """Which positions have a token within so many edits of a token of the text."""
        rows, tokens = column.rows, column.analyse(text)
        if not tokens or edits < 0:
            return np.zeros(rows.count, dtype=np.bool_)
        if edits > 0:
            # Lance's own fuzzy search misses tokens: it does not fold the query as it folds texts, stops
            # after some expansions and does not look into rows outside of its index.
            return _live_mask(rows, self._make_index(column).having_similar(tokens, edits))
        index = self._find_index(column)
        if index is not None:
            return _live_mask(rows, index.having_any(tokens))
        stored = self._ask_stored_index(column, text, None)
        if stored is None:
            return _live_mask(rows, self._make_index(column).having_any(tokens))
        found = np.zeros(rows.count, dtype=np.bool_)
        found[stored.positions] = True
        return found

    def relevance(
        self, column: TextColumn, text: str, limit: int | None
    ) -> tuple[Positions, NDArray[np.float64]]:
        """The positions that have a token of the text, and their relevance, in no order.

        With a `limit`, at least the best so many and all that are as good as the last of them.
        """
        rows, tokens = column.rows, column.analyse(text)
        if not tokens:
            return np.empty(0, np.int64), np.empty(0)
        index = self._find_index(column)
        if index is None and not _weighs_rightly(column):
            index = self._make_index(column)
        if index is not None:
            return index.relevance(tokens, rows.alive)
        found = self._ask_stored_index(column, text, limit)
        if found is None:
            return self._make_index(column).relevance(tokens, rows.alive)
        return found.positions, found.scores

    def unknown(self, column: TextColumn) -> Mask:
        """Which positions have no text."""
        rows, name = column.rows, column.name
        if not rows.table.schema.field(name).nullable:
            return np.zeros(rows.count, dtype=np.bool_)
        unknown: Mask = pc.is_null(rows.column(name)).to_numpy(zero_copy_only=False)
        return unknown

    # --- where to look -----------------------------------------------------------------------------

    def _find_index(self, column: TextColumn) -> TextIndex | None:
        """The index in memory; None when the stored one is to be asked."""
        key = column.key("text")
        if key not in self._indexes:
            self._indexes[key] = self._choose_index(column)
        return self._indexes[key]

    def _make_index(self, column: TextColumn) -> TextIndex:
        key = column.key("text")
        found = self._indexes.get(key)
        if found is None:
            found = self._indexes[key] = self._find_or_extend(column) or self._build_index(column)
        return found

    def _choose_index(self, column: TextColumn) -> TextIndex | None:
        kept = self._find_or_extend(column)
        if kept is not None:
            return kept
        stored = column.find_stored_index()
        if stored is None or stored.unindexed_rows > _MOST_UNINDEXED or self._pays_to_build(column, stored):
            return self._build_index(column)
        self.how = "stored index"
        return None

    def _pays_to_build(self, column: TextColumn, stored: StoredIndex) -> bool:
        size = (stored.indexed_rows + stored.unindexed_rows) * _TEXT_BYTES
        if size > self._memory.limit // _WARM_SHARE:
            return False
        key = column.key("searched")
        asked = (self._memory.get(key) or 0) + 1
        self._memory.keep(key, asked, 1)
        return asked > _WARM

    def _find_or_extend(self, column: TextColumn) -> TextIndex | None:
        """The index in memory, or that of a version these rows grew from with the new ones added."""
        self.how = "text index in memory"
        return self._memory.make_once(column.key("text"), lambda: self._extend_older(column))

    def _extend_older(self, column: TextColumn) -> TextIndex | None:
        rows, growth = column.rows, column.rows.growth
        for identity in () if growth is None else (growth.base, *growth.before):
            older: TextIndex | None = self._memory.get(column.key("text", identity))
            if older is not None:
                grown = older.extended(rows.count, partial(rows.values_from, column.name), self._check)
                return self._keep_index(column, grown)
        return None

    def _build_index(self, column: TextColumn) -> TextIndex:
        self.how = "text index made first"
        return self._memory.make_once(
            column.key("text"),
            lambda: self._keep_index(column, TextIndex.of(column.values(), self._check, column.language)),
        )

    def _keep_index(self, column: TextColumn, index: TextIndex) -> TextIndex:
        return self._memory.keep(column.key("text"), index, index.nbytes)

    def _ask_stored_index(self, column: TextColumn, text: str, limit: int | None) -> _Hits | None:
        if limit is not None:
            reach = 2 * limit + _SPARE
            found = _Hits.of(column, text, reach)
            if found is None or found.count < reach or found.reaches(limit):
                return found
        return _Hits.of(column, text, None)


@dataclass(frozen=True, slots=True)
class _Hits:
    """What a stored index found, without rows that were deleted: it goes on finding those."""

    positions: Positions
    scores: NDArray[np.float64]
    count: int
    """How many it found in all."""
    last: float
    """The relevance of the least relevant of all."""

    @classmethod
    def of(cls, column: TextColumn, text: str, reach: int | None) -> _Hits | None:
        """The most relevant so many, or all; None when there is no index any more."""
        hits = search_text(column.rows.table, column.name, text, reach)
        if hits is None:
            return None
        row_ids, scores = hits
        positions = column.rows.positions_of(row_ids)
        live = positions >= 0
        return cls(positions[live], scores[live], len(scores), float(scores.min(initial=np.inf)))

    def reaches(self, limit: int) -> bool:
        """Whether the best so many are among them, and all that are as good as the last of those."""
        if len(self.scores) < limit:
            return False
        first, last = round_scores(np.array([np.sort(self.scores)[-limit], self.last]))
        return bool(first != last)


def _weighs_rightly(column: TextColumn) -> bool:
    """Whether a stored index knows how many texts have each word, or nearly so in a large table.

    It counts texts that were deleted or changed since it was built, and weighs newer ones by other counts.
    """
    stored = column.find_stored_index()
    if stored is None:
        return False
    if stored.is_current or stored.indexed_rows + stored.unindexed_rows <= _EXACT_TEXTS:
        return stored.is_current
    return stored.unindexed_rows + stored.deleted_rows <= _MOST_UNINDEXED


def _live_mask(rows: Rows, found: Mask) -> Mask:
    return found if rows.alive is None else found & rows.alive
