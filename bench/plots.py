"""Pictures of figures: one for each workload, as SVG."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.measure import LIMIT, OURSELVES

FRESH, AGED, LINE = "#2a6fbb", "#d9822b", "#888888"


def draw_board(board: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    """A picture for each workload that has figures beside others; none where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, one in board["workloads"].items():
        figures = [each for each in one.get("figures", ()) if each["kind"] != OURSELVES]
        if figures:
            found[name] = folder / f"{name}.svg"
            _draw(f"{name}: {one['title']}", figures, found[name])
    return found


def _draw(title: str, figures: list[Any], to: Path) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # The same numbers give the same file.
    with mpl.rc_context({"svg.hashsalt": "omnigraph", "svg.fonttype": "none", "font.size": 9}):
        picture = Figure(figsize=(9, 1.2 + 0.28 * len(figures)), layout="constrained")
        axes: Any = picture.add_subplot()
        places = range(len(figures))
        axes.scatter([one["fresh"] for one in figures], places, color=FRESH, label="fresh", zorder=3)
        aged = [(one["aged"], place) for place, one in zip(places, figures, strict=True) if one["aged"]]
        if aged:
            axes.scatter(*zip(*aged, strict=True), color=AGED, marker="D", s=18, label="aged", zorder=2)
        limits = [
            (one["at_most"], place) for place, one in zip(places, figures, strict=True) if one["at_most"]
        ]
        if limits:
            axes.scatter(*zip(*limits, strict=True), color="black", marker="|", s=120, label="at most")
        axes.axvline(1, color=LINE, linewidth=1)
        axes.set_xscale("log")
        axes.set_yticks(places, [_label(one) for one in figures])
        axes.invert_yaxis()
        axes.grid(axis="x", alpha=0.3)
        axes.set_xlabel("our time / the other's: left of the line we are faster")
        axes.set_title(title, fontsize=10)
        axes.legend(loc="best", fontsize=8)
        picture.savefig(to, metadata={"Date": None})


def _label(one: Mapping[str, Any]) -> str:
    return f"{one['what']} / {one['against']}{' (limit)' if one['kind'] == LIMIT else ''}"
