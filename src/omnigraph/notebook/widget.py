"""A picture that can be moved, searched and clicked on, in a notebook."""

from __future__ import annotations

import json
from typing import Any

from omnigraph.display.text import escape_invisible, truncate
from omnigraph.notebook.layout import COLOURS, assign_colours, compute_positions, to_igraph
from omnigraph.notebook.packages import load_package
from omnigraph.notebook.subgraph import Subgraph

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
