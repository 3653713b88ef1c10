"""Records of one type, property by property."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from operator import itemgetter
from typing import Any

import numpy as np
from msgspec import UNSET

from omnigraph.engine.columns import ID
from omnigraph.engine.write.violations import Flags, Numbers


@dataclass(frozen=True, slots=True)
class Said:
    """What records say, before any value is looked at."""

    numbers: Numbers
    """Which lines of the split they are."""
    columns: Mapping[str, Sequence[Any]]
    """The values of every property of the type; None where a record has null or nothing."""
    ids: Sequence[Any] | None = None
    """The ids given, and UNSET where a record has none; None when no record has one."""
    sources: Sequence[str] = ()
    """Where each edge starts; empty for nodes."""
    targets: Sequence[str] = ()
    strangers: tuple[tuple[int, str], ...] = ()
    """Members that are no properties: row and name."""

    def only(self, wanted: Flags) -> Said:
        """Some of records that have no strangers."""
        chosen = wanted.tolist()
        return Said(
            self.numbers[wanted],
            {name: list(compress(values, chosen)) for name, values in self.columns.items()},
            None if self.ids is None else list(compress(self.ids, chosen)),
            list(compress(self.sources, chosen)),
            list(compress(self.targets, chosen)),
        )


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one type in one split, in input order."""

    key: str
    """The table of the type."""
    said: Said
    lines: Numbers
    offsets: Numbers
    """Where each record's line begins in its file."""
    file: str
    file_number: int


def said_by(
    data: Sequence[Mapping[str, Any]],
    properties: Sequence[str],
    numbers: Numbers,
    sources: Sequence[str] = (),
    targets: Sequence[str] = (),
) -> Said:
    """What records say whose members may have any name."""
    used = set(chain.from_iterable(data))
    strangers: Iterable[tuple[int, str]] = ()
    if odd := used - {*properties, ID}:
        strangers = ((row, name) for row, members in enumerate(data) for name in members if name in odd)
    return Said(
        numbers,
        {name: [members.get(name) for members in data] for name in properties},
        [members.get(ID, UNSET) for members in data] if ID in used else None,
        sources,
        targets,
        tuple(strangers),
    )


def in_order(parts: Sequence[Said]) -> Said:
    """All that is said, by line."""
    if len(parts) == 1:
        return parts[0]
    numbers = np.concatenate([part.numbers for part in parts])
    order = np.argsort(numbers)
    sort = itemgetter(*order.tolist())

    def together(values: Iterable[Sequence[Any]]) -> Sequence[Any]:
        return sort(tuple(chain.from_iterable(values)))  # type: ignore[no-any-return]  # two or more

    given = None
    if any(part.ids is not None for part in parts):
        given = together(part.ids or (UNSET,) * part.numbers.size for part in parts)
    has_ends = bool(parts[0].sources)
    return Said(
        numbers[order],
        {name: together(part.columns[name] for part in parts) for name in parts[0].columns},
        given,
        together(part.sources for part in parts) if has_ends else (),
        together(part.targets for part in parts) if has_ends else (),
        _moved_strangers(parts, order),
    )


def _moved_strangers(parts: Sequence[Said], order: Numbers) -> tuple[tuple[int, str], ...]:
    place = np.argsort(order)
    first = np.cumsum([0, *(part.numbers.size for part in parts)])
    return tuple(
        (int(place[begin + row]), name)
        for begin, part in zip(first.tolist(), parts, strict=False)
        for row, name in part.strangers
    )
