"""Lay a subgraph out and render it as an SVG or PNG file; the same every time."""

from __future__ import annotations

import json
import math
import random
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from omnigraph.display.text import escape_invisible, truncate
from omnigraph.errors import MissingExtra
from omnigraph.notebook.subgraph import Subgraph

NEEDED = ("igraph", "ipysigma", "matplotlib")


def require_packages() -> None:
    """Fail before anything is read when a package for pictures is not installed."""
    for name in NEEDED:
        if find_spec(name) is None:
            raise MissingExtra("draw", package=name, extra="notebook")


def load_package(name: str) -> Any:
    """A module of one of them, loaded when the first picture needs it."""
    return import_module(name)


Places = NDArray[np.float64]

COLOURS = (
    "#4e79a7",
    "#f28e2b",
    "#59a14f",
    "#e15759",
    "#b07aa1",
    "#76b7b2",
    "#edc948",
    "#9c755f",
    "#ff9da7",
    "#1b9e77",
    "#a50026",
    "#313695",
    "#8c6d31",
    "#d01c8b",
    "#17becf",
    "#b8e186",
    "#5e3c99",
    "#fdb863",
    "#003c30",
    "#c7c7c7",
    "#7f7f7f",
)
_GOLDEN = math.pi * (3 - math.sqrt(5))


def to_igraph(part: Subgraph) -> Any:
    """The part as an igraph graph: nodes are its vertices, in order."""
    return load_package("igraph").Graph(n=len(part.nodes), edges=part.ends.tolist(), directed=True)


def compute_positions(graph: Any) -> Places:
    """A place for each vertex, close to those it is joined with, from 0 to 1 both ways."""
    count = graph.vcount()
    if count == 0:
        return np.empty((0, 2))
    turns, radius = np.arange(count) * _GOLDEN, np.sqrt(np.arange(count) + 0.5)
    spiral = np.stack([np.cos(turns) * radius, np.sin(turns) * radius], axis=1)
    with _fixed_random():
        found = graph.layout_fruchterman_reingold(seed=spiral.tolist())
    return _scale_to_unit(np.array(found.coords, dtype=np.float64))


@contextmanager
def _fixed_random() -> Iterator[None]:
    """Fix `random` for the block, from which igraph draws, so that equal graphs get equal pictures."""
    before = random.getstate()
    random.seed(1)
    try:
        yield
    finally:
        random.setstate(before)


def _scale_to_unit(places: Places) -> Places:
    low, high = places.min(axis=0), places.max(axis=0)
    extent = np.where(high > low, high - low, 1.0)
    return np.where(high > low, (places - low) / extent, 0.5)


def assign_colours(names: Iterable[str], skipped: int = 0) -> dict[str, str]:
    """A colour for each name; those beyond the palette share the last one."""
    ordered = list(dict.fromkeys(names))
    last = len(COLOURS) - 1
    return {name: COLOURS[min(place + skipped, last)] for place, name in enumerate(ordered)}


StillFormat = Literal["svg", "png"]

WIDTH, HEIGHT, MARGIN = 8.0, 6.0, 0.5  # inches
DOTS = 150  # of a PNG, in an inch
NAMES = 60
"""The nodes with the most edges have their names written, up to so many."""
_POINT = 1 / 72  # of an inch
_WIDEST_NAME = 30


def render_image(part: Subgraph, names: list[str], caption: str, format: StillFormat) -> bytes:
    """The picture as the bytes of a file."""
    matplotlib, out = load_package("matplotlib"), BytesIO()
    settings = {"svg.hashsalt": "omnigraph", "svg.fonttype": "none"}
    # No date and no chance in the file; letters that the font does not have are boxes, not warnings.
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        metadata = {"Date": None} if format == "svg" else {"Software": None}
        _draw_figure(part, names, caption).savefig(out, format=format, dpi=DOTS, metadata=metadata)
    return out.getvalue()


def _draw_figure(part: Subgraph, names: list[str], caption: str) -> Any:
    figure = load_package("matplotlib.figure").Figure(figsize=(WIDTH, HEIGHT))
    # Inches are the units of the picture, so that sizes of nodes and lengths of edges compare.
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, HEIGHT))
    axes.set_axis_off()
    graph = to_igraph(part)
    places = MARGIN + compute_positions(graph) * (WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN)
    degrees = np.array(graph.degree(), dtype=np.int64)
    radii = _node_radii(degrees)
    node_colours = assign_colours(type_name for type_name, _ in part.nodes)
    edge_colours = assign_colours(part.edge_types, skipped=len(node_colours))
    _draw_edges(axes, part, places, radii, edge_colours)
    axes.scatter(
        places[:, 0],
        places[:, 1],
        s=(2 * radii / _POINT) ** 2,
        c=[node_colours[type_name] for type_name, _ in part.nodes],
        edgecolors="white",
        linewidths=0.8,
        zorder=2,
    )
    _write_names(axes, places, radii, degrees, names)
    _draw_legend(axes, node_colours, edge_colours, caption)
    return figure


def _node_radii(degrees: NDArray[np.int64]) -> NDArray[np.float64]:
    """Half the width of each node in inches, larger with more edges and smaller where there are many."""
    room = np.clip(20 / np.sqrt(max(len(degrees), 1)), 2, 7) * _POINT
    grown = np.sqrt(degrees / max(int(degrees.max(initial=0)), 1))
    return np.asarray(room * (0.7 + 0.8 * grown))


def _draw_edges(
    axes: Any, part: Subgraph, places: Places, radii: NDArray[np.float64], colours: dict[str, str]
) -> None:
    tints = np.array([colours[name] for name in part.edge_types], dtype=object)
    sources, targets = part.ends[:, 0], part.ends[:, 1]
    ways = places[targets] - places[sources]
    lengths = np.hypot(ways[:, 0], ways[:, 1])
    apart = lengths > 0
    shares = (1 - np.minimum(radii[targets][apart] / lengths[apart], 1))[:, None]
    starts, ways = places[sources][apart], ways[apart] * shares
    if len(starts):
        axes.quiver(
            *starts.T,
            *ways.T,
            color=tints[apart].tolist(),
            alpha=0.55,
            angles="xy",
            scale_units="xy",
            scale=1,
            units="inches",
            width=float(np.clip(0.2 / np.sqrt(len(starts)), 0.005, 0.012)),
            headwidth=7,
            headlength=8,
            headaxislength=7,
            zorder=1,
        )
    loops = sources == targets
    around = places[sources[loops]] + np.array([0, 1.4]) * radii[sources[loops], None]
    axes.scatter(
        *around.T,
        s=(2 * radii[sources[loops]] / _POINT) ** 2,
        facecolors="none",
        edgecolors=tints[loops].tolist(),
        zorder=1,
    )


def _write_names(
    axes: Any, places: Places, radii: NDArray[np.float64], degrees: NDArray[np.int64], names: list[str]
) -> None:
    for place in np.argsort(-degrees, kind="stable")[:NAMES].tolist():
        x, y = places[place] + (0, radii[place] + 2 * _POINT)
        text = truncate(escape_invisible(names[place]), _WIDEST_NAME)
        # A dollar sign is one, not the beginning of a formula.
        axes.text(x, y, text, ha="center", va="bottom", fontsize=8, parse_math=False, zorder=3)


def _draw_legend(axes: Any, node_colours: dict[str, str], edge_colours: dict[str, str], caption: str) -> None:
    line = load_package("matplotlib.lines").Line2D
    nodes = [
        line([], [], color=colour, label=name, marker="o", linestyle="none")
        for name, colour in node_colours.items()
    ]
    edges = [line([], [], color=colour, label=name) for name, colour in edge_colours.items()]
    if nodes:
        axes.legend(handles=[*nodes, *edges], loc="upper right", fontsize=8, frameon=False)
    axes.text(MARGIN / 4, MARGIN / 4, caption, fontsize=8, color="#555555", parse_math=False)


_FEW = 60
"""With so many nodes at most every name is written."""
_WIDEST = 300

_encode = json.JSONEncoder(ensure_ascii=False).encode


def build_widget(part: Subgraph, names: list[str], caption: str, height: int) -> Any:
    """The widget; all that it runs in the browser comes with its package."""
    graph = to_igraph(part)
    places = compute_positions(graph)
    graph.vs["label"] = list(map(escape_invisible, names))
    graph.vs["id"] = [escape_invisible(id_) for _, id_ in part.nodes]
    graph.vs["node_type"] = [type_name for type_name, _ in part.nodes]
    graph.vs["properties"] = [
        truncate(escape_invisible(_encode(dict(each))), _WIDEST) for each in part.properties
    ]
    graph.vs["size"] = graph.degree()
    graph.es["edge_type"] = list(part.edge_types)
    node_colours = assign_colours(type_name for type_name, _ in part.nodes)
    return load_package("ipysigma").Sigma(
        graph,
        name=caption,
        height=height,
        layout={place: {"x": x, "y": y} for place, (x, y) in enumerate(places.tolist())},
        node_color="node_type",
        node_color_palette=node_colours,
        edge_color="edge_type",
        edge_color_palette=assign_colours(part.edge_types, skipped=len(node_colours)),
        max_categorical_colors=len(COLOURS),
        clickable_edges=True,
        show_all_labels=len(part.nodes) <= _FEW,
    )
