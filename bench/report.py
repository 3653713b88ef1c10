"""A run as Markdown: what was measured on what, which targets were met, and where we lose."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any

from bench.board import FAILED
from bench.measure import OWN, PEER, WHOLE

Board = Mapping[str, Any]
Judged = Mapping[str, Any]

HEAD = """\
# Benchmarks

<!-- Written by `python -m bench report`. -->

`make bench` measures the workloads below, each in a process of its own and in turns with other databases that
install with pip; `make bench ARGS=--quick` takes six to ten minutes, with less of everything. It keeps all
numbers as JSON in `bench/results/`, with tables and pictures beside it. `.venv/bin/python -m bench report`
writes this page from the last run of all workloads. What makes reads and writes fast or slow is described in
[performance](performance.md).

* A **figure** is our median time divided by the other's: below 1 we are faster. It is rounded up, and whether
  a target is met is decided before rounding.
* **Fresh** is a new graph. **Aged** has the same rows, left by many small commits, and was not put in order
  since. A target has to be met by both.
* **Again** is the same as fresh once more, in turns with it: how far its figure is from 1 tells what noise
  does. A target that is met or missed by less than that is marked.
* A **physical limit** does only what cannot be left out: the bare calls of a write, Lance writing rows that
  are ready, Spark copying files.
"""
NOTHING = """
## The last run

No run of all workloads was kept yet.
"""


def page(board: Board | None, pictures: Mapping[str, str]) -> str:
    """All of docs/benchmarks.md; `pictures` are addresses by workload."""
    if board is None:
        return HEAD + NOTHING
    parts = [HEAD, _machine(board), _summary(board)]
    parts += [_workload(name, one, pictures.get(name)) for name, one in board["workloads"].items()]
    return "\n".join(parts)


def tables(name: str, one: Board) -> str:
    """The figures and times of one workload."""
    if FAILED in one:
        return f"{name} failed: {one[FAILED]}\n"
    return f"{_figures(one)}\n\n{_times(one)}\n"


def _machine(board: Board) -> str:
    machine, versions = board["machine"], board["versions"]
    absent = [name for name, version in versions.items() if version is None]
    rows = [
        ["date", board["date"]],
        ["commit", board["commit"]],
        ["size", board["size"]],
        ["processor", f"{machine['processor']}, {machine['cores']} cores"],
        ["memory", f"{machine['memory bytes'] / 2**30:.1f} GiB"],
        ["system", f"{machine['system']}, Python {machine['python']}"],
        ["versions", ", ".join(f"{name} {each}" for name, each in versions.items() if each)],
        ["not installed", ", ".join(absent) or "nothing"],
    ]
    lines = ["## The last run", "", _table(["", ""], rows), ""]
    if board["size"] != WHOLE:
        lines += [
            f"This was a **{board['size']}** run: less data and fewer rounds than targets are stated for.",
            "",
        ]
    return "\n".join(lines)


def _summary(board: Board) -> str:
    judged = [(name, one) for name, one in _all(board) if one["met"] is not None]
    met = sum(one["met"] for _, one in judged)
    unmeasured = [
        f"{name}: {one['what']} against {one['against']}"
        for name, each in board["workloads"].items()
        for one in each.get("unmeasured", ())
    ]
    lines = [f"{met} of {len(judged)} figures that have a target meet it.", "", "### Where we lose", ""]
    lines.append(_losses(board) or "Nowhere in this run.")
    failed = [f"* {name} failed: {one[FAILED]}" for name, one in board["workloads"].items() if FAILED in one]
    if failed:
        lines += ["", *failed]
    if unmeasured:
        lines += ["", "### Targets without a figure", "", *(f"* {one}" for one in unmeasured)]
    return "\n".join([*lines, ""])


def _losses(board: Board) -> str:
    """Targets that are missed, and then every other party that was faster."""
    missed = [(name, one) for name, one in _all(board) if one["met"] is False]
    slower = [
        (name, one)
        for name, one in _all(board)
        if one["met"] is not False and one["kind"] == PEER and _worst(one) > 1
    ]
    rows = [
        [name, one["what"], one["against"], _up(one["fresh"]), _up(one["aged"]), _limit(one), how]
        for how, those in (("target missed", missed), ("slower", slower))
        for name, one in sorted(those, key=lambda each: -_worst(each[1]))
    ]
    head = ["", "task", "beside", "fresh", "aged", "target", ""]
    return _table(head, rows) if rows else ""


def _all(board: Board) -> Iterator[tuple[str, Judged]]:
    for name, one in board["workloads"].items():
        for figure in one.get("figures", ()):
            yield name, figure


def _workload(name: str, one: Board, picture: str | None) -> str:
    lines = [f"## {name}: {one['title']}", ""]
    if FAILED in one:
        return "\n".join([*lines, f"It failed: {one[FAILED]}", ""])
    facts = ", ".join(f"{key} {value}" for key, value in one["facts"].items() if _plain(value))
    before, after = one["load before"][0], one["load after"][0]
    lines += [
        f"{one['proof']} {f'{facts.capitalize()}.' if facts else ''}".rstrip(),
        "",
        f"The load average was {before:.2f} before and {after:.2f} after; it took {one['seconds']:.0f} s.",
        "",
    ]
    if one["absent"]:
        lines += [f"Not measured: {', '.join(one['absent'])}.", ""]
    if picture:
        lines += [f"![Figures of {name}]({picture})", ""]
    return "\n".join([*lines, tables(name, one)])


def _figures(one: Board) -> str:
    rows = [
        [
            each["what"],
            each["against"],
            each["kind"],
            _share(each) if each["at_least"] is not None else _up(each["fresh"]),
            _up(each["aged"]),
            _up(one["noise"].get(each["what"])),
            _limit(each),
            _verdict(each, one["noise"].get(each["what"])),
        ]
        for each in one["figures"]
    ]
    return _table(["ours / other", "beside", "which is", "fresh", "aged", "again", "target", "met"], rows)


def _times(one: Board) -> str:
    names = list(dict.fromkeys(name for parties in one["times"].values() for name in parties))
    names.sort(key=lambda name: OWN.index(name) if name in OWN else len(OWN))
    rows = [
        [task, *(_milliseconds(parties.get(name)) for name in names)]
        for task, parties in one["times"].items()
    ]
    return _table(["median ms", *names], rows)


def _verdict(one: Judged, noise: float | None) -> str:
    if one["met"] is None:
        return ""
    limit = one["at_most"] if one["at_most"] is not None else one["at_least"]
    unsure = noise is not None and abs(_worst(one) / limit - 1) < abs(noise - 1)
    return ("yes" if one["met"] else "**no**") + (", within noise" if unsure else "")


def _worst(one: Judged) -> float:
    worst: float = max(one["fresh"], one["aged"] or 0.0)
    return worst


def _limit(one: Judged) -> str:
    if one["at_least"] is not None:
        return f"at least {one['at_least']:g}"
    return "" if one["at_most"] is None else f"at most {math.floor(one['at_most'] * 1000) / 1000:g}"


def _up(value: float | None) -> str:
    """Three digits, rounded up: never in our favour."""
    if value is None:
        return ""
    if value <= 0:
        return f"{value:g}"
    exact = Decimal(repr(value))
    step = Decimal(1).scaleb(exact.adjusted() - 2)
    return f"{exact.quantize(step, ROUND_CEILING):f}"


def _share(one: Judged) -> str:
    """Of shares more is better, so these are rounded down."""
    return f"{math.floor(round(one['fresh'] * 10_000, 6)) / 10_000:.4f}"


def _milliseconds(seconds: Sequence[float] | None) -> str:
    return "" if seconds is None else f"{statistics.median(seconds) * 1000:.4g}"


def _plain(value: object) -> bool:
    return isinstance(value, int | float | str) or (
        isinstance(value, list) and all(isinstance(one, int | float | str) for one in value)
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
