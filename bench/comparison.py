"""Times of several databases side by side: tasks in turns, medians, ratios and their geometric mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.measure import Timing

OURS = "omnigraph"
AGAIN = "omnigraph again"
"""The same database in a second process: how far two equal things are apart tells what noise does."""


@dataclass(frozen=True, slots=True)
class Section:
    """One table: a task in each row, a database in each column."""

    title: str
    times: Mapping[str, Mapping[str, Sequence[float]]]
    """Seconds by task and database."""

    def timings(self) -> Iterable[Timing]:
        """Everything measured, under names that say where it belongs."""
        for task, by_name in self.times.items():
            for name, seconds in by_name.items():
                yield Timing(f"{self.title} / {task} / {name}", tuple(seconds))

    def ratios(self, peer: str) -> dict[str, float]:
        """How long we take where a peer takes 1, by task; below 1 we are faster."""
        return {
            task: statistics.median(times[OURS]) / statistics.median(times[peer])
            for task, times in self.times.items()
            if peer in times and OURS in times
        }

    def all_ratios(self) -> dict[str, dict[str, float]]:
        """The ratios to every peer."""
        peers = dict.fromkeys(name for times in self.times.values() for name in times if name != OURS)
        return {peer: self.ratios(peer) for peer in peers}

    def text(self) -> str:
        """Medians in milliseconds and ratios, with the geometric mean of the ratios at the end."""
        names = list(dict.fromkeys(name for times in self.times.values() for name in times))
        ratios = self.all_ratios()
        rows = [["ms (median)", *names, *(f"ours / {peer}" for peer in ratios)]]
        for task, times in self.times.items():
            medians = [
                f"{statistics.median(times[name]) * 1000:.3f}" if name in times else "" for name in names
            ]
            rows.append([task, *medians, *(_shown(each.get(task)) for each in ratios.values())])
        if len(self.times) > 1:
            means = [_shown(_geometric_mean(list(each.values()))) for each in ratios.values()]
            rows.append(["geometric mean", *("" for _ in names), *means])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [self.title]
        for first, *rest in rows:
            cells = [first.ljust(widths[0])]
            cells += [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)


def sections_of(timings: Iterable[Timing]) -> list[Section]:
    """The sections that timings were taken from."""
    found: dict[str, dict[str, dict[str, Sequence[float]]]] = {}
    for timing in timings:
        title, task, name = timing.name.split(" / ")
        found.setdefault(title, {}).setdefault(task, {})[name] = timing.seconds
    return [Section(title, times) for title, times in found.items()]


def same_answers(
    question: str, found: Mapping[str, Sequence[tuple[object, ...]]], ranked: int | None = None
) -> None:
    """Fail unless all databases gave the same rows, in whatever order.

    Where only the first few by column `ranked` were asked for, rows that share the last place may differ:
    there were more of them than were wanted.
    """
    (first, expected), *others = ((name, _canonical(rows, ranked)) for name, rows in found.items())
    for name, rows in others:
        assert rows == expected, f"{question}: {first} gave {expected[:5]}, {name} gave {rows[:5]}"


def _canonical(rows: Sequence[tuple[object, ...]], ranked: int | None) -> list[tuple[object, ...]]:
    plain = sorted((tuple(map(_plain, row)) for row in rows), key=repr)
    if ranked is None or not rows:
        return plain
    last = _plain(rows[-1][ranked])
    return sorted(((last,) if row[ranked] == last else row for row in plain), key=repr)


def _plain(value: object) -> object:
    return float(f"{value:.12g}") if isinstance(value, float) else value


def _geometric_mean(values: Sequence[float]) -> float | None:
    return math.exp(statistics.fmean(map(math.log, values))) if values else None


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
