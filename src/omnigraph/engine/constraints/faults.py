"""Rules about several rows: which rows break them, as errors of a mutation or violations of a load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import TableType
from omnigraph.engine.rows.violations import Numbers, Origins, Violation, format_entity
from omnigraph.errors import BadRequest, ConstraintViolation, KeyConflict, LoadRejected

Rule = Literal["key_conflict", "missing", "unique", "endpoint", "cardinality"]

Placed = Callable[[Iterable[Violation]], Iterator[Violation]]
"""Tells the places of violations as their files have them."""

_LONGEST = 60
_SKIP = "skip them with --skip-bad (`skip_bad=True`)"
FIX_RECORDS = f"fix the reported records, or {_SKIP}"
NO_ROW = -1
"""Stands for a row that is stored and no part of the change."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The breaches of one rule in one table."""

    rule: Rule
    target: TableType
    rows: Numbers
    """The place of each in the rows of the change."""
    ids: pa.Array
    reasons: pa.Array
    final: bool = False
    """Leaving out the rows would not help."""
    remedy: str | None = None
    """The remedy, for mutations and loads alike."""
    about: str | None = None
    """The table of the ids, where it is not that of the target."""

    def __len__(self) -> int:
        return len(self.rows)

    def renumbered(self, numbers: Numbers) -> Faults:
        """Return the same faults with other row numbers."""
        known = self.rows != NO_ROW
        return replace(self, rows=np.where(known, numbers[np.where(known, self.rows, 0)], NO_ROW))

    @property
    def ranks(self) -> Numbers:
        """The order of stored rows among each other, which have no place: by id; 0 for all others."""
        return np.where(self.rows == NO_ROW, rank_ids(self.ids), 0)


def rank_ids(ids: pa.Array) -> Numbers:
    """The place of each id among all of them, sorted."""
    found: Numbers = pc.rank(ids, tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def join_texts(*parts: str | pa.Array | pa.ChunkedArray) -> pa.Array:
    """One text per row from texts that are the same for all and columns of texts."""
    return pc.binary_join_element_wise(*(it if isinstance(it, str) else _shorten(it) for it in parts), "")


def _shorten(texts: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Texts of the user as messages show them: `shorten`, for a column."""
    long = pc.greater(pc.utf8_length(texts), _LONGEST)
    if not pc.any(long).as_py():
        return texts
    cut = pc.utf8_slice_codeunits(texts, 0, _LONGEST)
    return pc.if_else(long, pc.binary_join_element_wise(cut, "…", ""), texts)


def to_error(faults: Faults) -> BadRequest | KeyConflict:
    """The first of the faults as an error."""
    entity = faults.ids[0].as_py()
    if faults.rule == "key_conflict":
        return KeyConflict(faults.target.kind, faults.target.name, entity, remedy=faults.remedy)
    return ConstraintViolation(
        faults.reasons[0].as_py(),
        constraint=faults.rule,
        type_name=faults.target.name,
        entity_id=entity,
        remedy=faults.remedy,
    )


def to_violations(found: Sequence[Faults], origins: Mapping[str, Origins]) -> Iterator[Violation]:
    """All faults in input order, each with its place; those about stored rows come last, sorted by id."""
    if not found:
        return
    rows = np.concatenate([faults.rows for faults in found])
    group = np.repeat(np.arange(len(found)), [len(faults) for faults in found])
    within = np.concatenate([np.arange(len(faults)) for faults in found])
    file, line = _find_places(found, origins)
    ranks = np.concatenate([faults.ranks for faults in found])
    for it in np.lexsort((within, ranks, group, line, file, rows == NO_ROW)):
        yield _build_violation(found[group[it]], int(within[it]), origins)


def build_rejection(
    found: Sequence[Faults], origins: Mapping[str, Origins], limit: int, placed: Placed = iter
) -> LoadRejected | KeyConflict:
    """A load that cannot be: a conflict when the first fault is a stored id, else a list of violations."""
    first = min(found, key=lambda faults: _sort_key(faults, origins))
    counts = count_by_kind((faults.rule, len(faults)) for faults in found)
    violations = tuple(islice(placed(to_violations(found, origins)), limit))
    if first.rule == "key_conflict":
        target, entity = first.target, first.ids[0].as_py()
        return KeyConflict(
            target.kind,
            target.name,
            entity,
            violations=violations,
            total=counts.total(),
            counts=counts,
            remedy=first.remedy,
        )
    remedy = choose_remedy(first.remedy, final=any(faults.final for faults in found))
    return LoadRejected(violations, total=counts.total(), counts=counts, remedy=remedy)


def choose_remedy(remedy: str | None, *, final: bool) -> str:
    """What helps a load that was refused; leaving records out does as well, unless the refusal is final."""
    if remedy is None:
        return FIX_RECORDS
    return remedy if final else f"{remedy}; or {_SKIP}"


def count_by_kind(found: Iterable[tuple[str, int]]) -> Counter[str]:
    """How many there are in all, by kind."""
    counts: Counter[str] = Counter()
    for kind, many in found:
        counts[kind] += many
    return counts


def _sort_key(faults: Faults, origins: Mapping[str, Origins]) -> tuple[bool, int, int]:
    row = int(faults.rows[0])
    if row == NO_ROW:
        return True, 0, 0
    places = origins[faults.target.key]
    return False, int(places.file[row]), int(places.line[row])


def _find_places(found: Sequence[Faults], origins: Mapping[str, Origins]) -> tuple[Numbers, Numbers]:
    files, lines = [], []
    for faults in found:
        known = faults.rows != NO_ROW
        safe = np.where(known, faults.rows, 0)
        places = origins.get(faults.target.key)
        if places is None or not len(places.line):
            files.append(np.zeros(len(faults), np.int64))
            lines.append(np.zeros(len(faults), np.int64))
        else:
            files.append(np.where(known, places.file[safe], 0))
            lines.append(np.where(known, places.line[safe], 0))
    return np.concatenate(files), np.concatenate(lines)


def _build_violation(faults: Faults, position: int, origins: Mapping[str, Origins]) -> Violation:
    row = int(faults.rows[position])
    file, line = (None, None) if row == NO_ROW else origins[faults.target.key].place(row)
    entity = format_entity(faults.about or faults.target.key, faults.ids[position].as_py())
    return Violation(file, line, entity, faults.reasons[position].as_py())
