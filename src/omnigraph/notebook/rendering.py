"""Render a picture as an SVG or PNG file."""

from __future__ import annotations

import json
import warnings
from io import BytesIO
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from omnigraph.display.text import escape_invisible, truncate
from omnigraph.notebook.layout import (
    COLOURS,
    Places,
    assign_colours,
    compute_positions,
    load_package,
    to_igraph,
)
from omnigraph.notebook.subgraph import Subgraph

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
        _figure(part, names, caption).savefig(out, format=format, dpi=DOTS, metadata=metadata)
    return out.getvalue()


def _figure(part: Subgraph, names: list[str], caption: str) -> Any:
    figure = load_package("matplotlib.figure").Figure(figsize=(WIDTH, HEIGHT))
    # Inches are the units of the picture, so that sizes of nodes and lengths of edges compare.
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, HEIGHT))
    axes.set_axis_off()
    graph = to_igraph(part)
    places = MARGIN + compute_positions(graph) * (WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN)
    degrees = np.array(graph.degree(), dtype=np.int64)
    radii = _radii(degrees)
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


def _radii(degrees: NDArray[np.int64]) -> NDArray[np.float64]:
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
