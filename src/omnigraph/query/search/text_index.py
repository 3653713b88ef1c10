"""A text index made in memory, for texts that no stored index answers for.

It holds, for each token, the positions that have it and how often. It is made in runs of positions. The
index of a table that grew shares the runs of the old one; only those that are no longer than what came behind
them are made again, so growing by single texts costs little each time and leaves few runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.query.frame import Positions
from omnigraph.storage.search import analyse, analyse_words


def within_edits(word: str, others: pa.Array, edits: int) -> NDArray[np.bool_]:
    """Which of the other words so many edits or fewer turn into `word`; letters are code points."""
    found = np.zeros(len(others), dtype=np.bool_)
    if edits < 0:
        return found
    lengths = pc.utf8_length(others).to_numpy(zero_copy_only=False)
    for length in np.unique(lengths[np.abs(lengths - len(word)) <= edits]):
        places = np.flatnonzero(lengths == length)
        letters = _letters_of(others.take(pa.array(places)), int(length))
        found[places] = _edit_distances(word, letters) <= edits
    return found


def _letters_of(words: pa.Array, length: int) -> NDArray[np.uint32]:
    """The code points of words that are equally long, one row for each letter."""
    joined = "".join(words.to_pylist()).encode("utf-32-le", "surrogatepass")
    return np.frombuffer(joined, np.uint32).reshape(len(words), length).T


def _edit_distances(word: str, letters: NDArray[np.uint32]) -> NDArray[np.int16]:
    """The edit distance of a word to each of many equally long ones, all at once."""
    length, many = letters.shape
    before = np.repeat(np.arange(length + 1, dtype=np.int16)[:, None], many, axis=1)
    for number, letter in enumerate(word, 1):
        after = np.empty_like(before)
        after[0] = number
        differs = letters != ord(letter)
        for place in range(length):
            cheapest = np.minimum(before[place + 1], after[place]) + 1
            after[place + 1] = np.minimum(cheapest, before[place] + differs[place])
        before = after
    return before[length]


Mask = NDArray[np.bool_]
Check = Callable[[], None]
"""Asks whether to go on; raises when not."""


def never_stop() -> None:
    """A check that never stops the work."""


_RUN = 1 << 18
"""Positions of one run: bounds the memory that building takes."""
_PIECE = 1 << 14
"""Texts that are cut into words at a time: few enough for the processor's cache."""

_FEW = 64
"""So few tokens are looked up one by one."""

_SATURATION = 1.2
_LENGTH_WEIGHT = 0.75


def _folding_table() -> NDArray[np.uint8]:
    """Bytes of a text to bytes of its words: ASCII in lower case, 0 between words.

    Beyond ASCII the bytes stay: where words end there, only the analyser knows.
    """
    table = np.zeros(256, np.uint8)
    for code in range(128):
        if chr(code).isalnum():
            table[code] = ord(chr(code).lower())
    table[128:] = np.arange(128, 256)
    return table


_FOLD = _folding_table()


@dataclass(frozen=True, slots=True)
class _Run:
    """The tokens of the texts at `start` and the positions behind it."""

    start: int
    tokens: pa.Array
    """Each once."""
    bounds: NDArray[np.int64]
    """Where the entries of each token begin; one more than there are tokens."""
    positions: NDArray[np.int32]
    """Relative to `start`; by token, then ascending."""
    counts: NDArray[np.uint16]
    lengths: NDArray[np.int32]
    """How many tokens each text has."""

    @property
    def nbytes(self) -> int:
        arrays = (self.bounds, self.positions, self.counts, self.lengths)
        return int(self.tokens.nbytes) + sum(array.nbytes for array in arrays)

    def find(self, tokens: Sequence[str]) -> NDArray[np.int64]:
        """The place of each token in `tokens`; -1 where no text has it."""
        if len(tokens) <= _FEW:
            return np.array([pc.index(self.tokens, token).as_py() for token in tokens], dtype=np.int64)
        found = pc.index_in(pa.array(tokens, pa.string()), value_set=self.tokens).fill_null(-1)
        return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)

    def entries(self, token: int) -> slice:
        """The entries of the token at a place."""
        return slice(self.bounds[token], self.bounds[token + 1]) if token >= 0 else slice(0, 0)

    def having(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions that have one of the tokens at these places, perhaps several times."""
        if len(tokens) <= _FEW:
            parts = [self.positions[self.entries(token)] for token in tokens]
            relative = np.concatenate([self.positions[:0], *parts])
        else:
            wanted = np.zeros(len(self.tokens), dtype=np.bool_)
            wanted[tokens[tokens >= 0]] = True
            relative = self.positions[np.repeat(wanted, np.diff(self.bounds))]
        return self.start + relative.astype(np.int64)


@dataclass(frozen=True, slots=True)
class TextIndex:
    """The tokens of one property by position."""

    count: int
    runs: tuple[_Run, ...]
    language: str = "english"

    @classmethod
    def of(cls, texts: pa.Array, check: Check = never_stop, language: str = "english") -> TextIndex:
        """The index of these texts; a null has no tokens. `check` is called now and then on the way."""
        return cls(len(texts), tuple(_build_runs(texts, 0, check, language)), language)

    def extended(
        self, count: int, texts_from: Callable[[int], pa.Array], check: Check = never_stop
    ) -> TextIndex:
        """The index of `count` texts that begin with those of this one.

        `texts_from` returns the texts at a position and behind it.
        """
        if count == self.count:
            return self
        kept, start = list(self.runs), self.count
        while kept and len(kept[-1].lengths) <= min(count - start, _RUN - 1):
            start = kept.pop().start
        added = _build_runs(texts_from(start), start, check, self.language)
        return TextIndex(count, (*kept, *added), self.language)

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return sum(run.nbytes for run in self.runs)

    def having_any(self, tokens: Sequence[str]) -> Mask:
        """Which texts have one of these tokens."""
        wanted = list(dict.fromkeys(tokens))
        found = np.zeros(self.count, dtype=np.bool_)
        for run in self.runs:
            found[run.having(run.find(wanted))] = True
        return found

    def having_similar(self, tokens: Sequence[str], edits: int) -> Mask:
        """Which texts have a token that so many edits or fewer turn into one of these."""
        found = np.zeros(self.count, dtype=np.bool_)
        for run in self.runs:
            similar = np.zeros(len(run.tokens), dtype=np.bool_)
            for token in dict.fromkeys(tokens):
                similar |= within_edits(token, run.tokens, edits)
            found[run.having(np.flatnonzero(similar))] = True
        return found

    def relevance(self, tokens: Sequence[str], alive: Mask | None) -> tuple[Positions, NDArray[np.float64]]:
        """The live positions that have one of these tokens, ascending, and their BM25 scores.

        A token that is asked for twice counts twice.
        """
        scores = np.zeros(self.count, dtype=np.float64)
        live, length = self._count_live(alive)
        asked = Counter(tokens)
        places = [run.find(list(asked)) for run in self.runs]
        for number, times in enumerate(asked.values()):
            positions, counts, lengths = self._collect_entries([found[number] for found in places], alive)
            having = len(positions)
            rarity = np.log1p((live - having + 0.5) / (having + 0.5))
            damping = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * lengths * live / max(length, 1))
            scores[positions] += times * rarity * counts * (_SATURATION + 1) / (counts + damping)
        found = np.flatnonzero(scores)
        return found, scores[found]

    def _collect_entries(
        self, places: Sequence[int], alive: Mask | None
    ) -> tuple[Positions, NDArray[np.float64], NDArray[np.float64]]:
        """Which positions have the token at these places of the runs, how often, and how long they are."""
        each = [(np.empty(0, np.int64), np.empty(0, np.uint16), np.empty(0, np.int32))]
        for run, place in zip(self.runs, places, strict=True):
            entries = run.entries(place)
            relative = run.positions[entries]
            positions, counts = run.start + relative.astype(np.int64), run.counts[entries]
            lengths = run.lengths[relative]
            if alive is not None:
                kept = alive[positions]
                positions, counts, lengths = positions[kept], counts[kept], lengths[kept]
            each.append((positions, counts, lengths))
        positions, counts, lengths = (np.concatenate(parts) for parts in zip(*each, strict=True))
        return positions, counts.astype(np.float64), lengths.astype(np.float64)

    def _count_live(self, alive: Mask | None) -> tuple[int, int]:
        """How many live texts have tokens, and how many tokens; texts without any count for nothing."""
        texts = tokens = 0
        for run in self.runs:
            lengths = run.lengths
            if alive is not None:
                lengths = lengths[alive[run.start : run.start + len(lengths)]]
            texts += int(np.count_nonzero(lengths))
            tokens += int(lengths.sum())
        return texts, tokens


# --- building --------------------------------------------------------------------------------------


def _build_runs(texts: pa.Array, start: int, check: Check, language: str) -> Iterator[_Run]:
    """Yield the runs of texts, the first of which is at the position `start`."""
    for begin in range(0, len(texts), _RUN):
        yield _build_run(texts.slice(begin, _RUN), start + begin, check, language)


def _build_run(texts: pa.Array, start: int, check: Check, language: str) -> _Run:
    pieces = []
    for begin in range(0, len(texts), _PIECE):
        check()
        pieces.append(_split_words(texts.slice(begin, _PIECE)))
    encoded = pa.chunked_array([words for words, _ in pieces]).dictionary_encode().combine_chunks()
    of_word = np.concatenate([rows + number * _PIECE for number, (_, rows) in enumerate(pieces)])
    words, tokens = _tokenize_words(encoded.dictionary, language)
    token_codes, positions = _spread_tokens(
        encoded.indices.to_numpy(), of_word, words, tokens.indices.to_numpy()
    )
    # One sort by token and position; equal neighbours are one entry that counts them.
    size = max(len(texts), 1)
    keys = np.sort(token_codes.astype(np.int64) * size + positions)
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    entry_tokens, entry_positions = np.divmod(keys[first], size)
    counts = np.diff(first, append=len(keys))
    return _Run(
        start,
        tokens.dictionary,
        np.searchsorted(entry_tokens, np.arange(len(tokens.dictionary) + 1)),
        entry_positions.astype(np.int32),
        np.minimum(counts, np.iinfo(np.uint16).max).astype(np.uint16),
        np.bincount(positions, minlength=len(texts)).astype(np.int32),
    )


def _split_words(texts: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """The words of texts, cut at ASCII other than letters and digits, and which text each is in."""
    plain = texts.fill_null("") if texts.null_count else texts
    wide = pa.types.is_large_string(plain.type)
    stored = np.frombuffer(plain.buffers()[1], np.dtype(np.int64 if wide else np.int32))
    offsets: NDArray[np.int64] = stored[plain.offset : plain.offset + len(plain) + 1].astype(np.int64)
    data = plain.buffers()[2]
    read = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data else np.empty(0, np.uint8)
    offsets -= offsets[0]
    folded = _FOLD[read]
    inside = folded != 0
    begins = inside.copy()
    begins[1:] &= ~inside[:-1]
    edges = offsets[:-1][offsets[:-1] < len(read)]
    begins[edges] = inside[edges]  # a text begins a word even where the one before ended in one
    at = np.flatnonzero(begins)
    packed = folded[inside]
    ends = np.append(np.cumsum(inside)[at] - 1, len(packed)).astype(np.int64)
    words = pa.Array.from_buffers(
        pa.large_string(), len(at), [None, pa.py_buffer(np.ascontiguousarray(ends)), pa.py_buffer(packed)]
    )
    rows = np.repeat(np.arange(len(plain)), np.diff(np.searchsorted(at, offsets)))
    return words, rows


def _tokenize_words(words: pa.Array, language: str) -> tuple[NDArray[np.int64], pa.DictionaryArray]:
    """What the analyser makes of each distinct word: places of words, ascending, and their tokens."""
    ascii_only = pc.string_is_ascii(words).to_numpy(zero_copy_only=False)
    plain = np.flatnonzero(ascii_only)
    places, tokens = analyse_words(words.take(pa.array(plain)).to_pylist(), language)
    sources, found = [plain[places]], [pa.array(tokens, pa.string())]
    for place in np.flatnonzero(~ascii_only):
        several = analyse(words[place].as_py(), language)
        sources.append(np.full(len(several), place))
        found.append(pa.array(several, pa.string()))
    word_places = np.concatenate(sources)
    order = np.argsort(word_places, kind="stable")
    return word_places[order], pa.concat_arrays(found).take(pa.array(order)).dictionary_encode()


def _spread_tokens(
    codes: NDArray[np.int32], rows: NDArray[np.int64], words: NDArray[np.int64], tokens: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The tokens of each word that occurs, with the text it occurs in."""
    size = int(codes.max(initial=-1)) + 1
    begins = np.searchsorted(words, np.arange(size + 1))
    many = np.diff(begins)[codes]
    if (many <= 1).all():
        kept = many == 1
        return tokens[begins[codes[kept]]], rows[kept]
    within = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
    return tokens[np.repeat(begins[codes], many) + within], np.repeat(rows, many)
