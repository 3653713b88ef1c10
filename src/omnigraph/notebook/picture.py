"""A picture of a part of a graph, to be looked at in a notebook or saved as a file."""

from __future__ import annotations

import os
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.files.output_paths import require_output
from omnigraph.errors import BadRequest, InvalidValue
from omnigraph.lang.values import shorten_legibly
from omnigraph.notebook.rendering import build_widget, render_image
from omnigraph.notebook.subgraph import Subgraph

LEAST_HEIGHT = 250


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Picture:
    """Nodes and the edges between them; a notebook shows it as something to move and click on."""

    _part: Subgraph
    label: str | None
    """The property that names nodes, where they have it; otherwise their ids do."""
    height: int
    """How high it is in a notebook, in pixels."""

    @property
    def nodes(self) -> list[tuple[str, str]]:
        """The nodes that are shown, each by type and id."""
        return list(self._part.nodes)

    @property
    def edges(self) -> list[tuple[str, str, str]]:
        """The edges that are shown: type, id of the source, id of the target."""
        ids = [id_ for _, id_ in self._part.nodes]
        ends = self._part.ends.tolist()
        return [
            (name, ids[source], ids[target])
            for name, (source, target) in zip(self._part.edge_types, ends, strict=True)
        ]

    @property
    def cut(self) -> bool:
        """Whether there is more than is shown."""
        part = self._part
        fewer = len(part.nodes) < part.found_nodes or len(part.edge_types) < part.found_edges
        return fewer or not part.complete

    def widget(self) -> Any:
        """The interactive picture, to be put beside other widgets."""
        return build_widget(self._part, self._node_names(), self._make_caption(), self.height)

    def svg(self) -> str:
        """The picture as the text of an SVG file."""
        return render_image(self._part, self._node_names(), self._make_caption(), "svg").decode("utf-8")

    def png(self) -> bytes:
        """The picture as the bytes of a PNG file."""
        return render_image(self._part, self._node_names(), self._make_caption(), "png")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file that ends with `.svg` or `.png`."""
        file = require_output(path)
        match file.suffix.lower():
            case ".svg":
                content = self.svg().encode("utf-8")
            case ".png":
                content = self.png()
            case _:
                raise BadRequest(
                    f"'{shorten_legibly(file.name)}' is not the name of a picture",
                    remedy="end it with .svg or .png",
                )
        try:
            file.write_bytes(content)
        except OSError as failure:
            raise BadRequest(
                f"cannot write '{file}': {failure.strerror}", remedy="check the path"
            ) from failure

    def __repr__(self) -> str:
        return f"<Picture of {self._make_caption()}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        # The image is for those who read the notebook where no widgets run.
        bundle = self.widget()._repr_mimebundle_()
        return {**bundle, "image/png": self.png(), "text/plain": repr(self)}

    def _make_caption(self) -> str:
        part = self._part
        nodes = _describe_some(len(part.nodes), part.found_nodes, "node", complete=part.complete)
        return f"{nodes} and {_describe_some(len(part.edge_types), part.found_edges, 'edge')}"

    def _node_names(self) -> list[str]:
        labels = [None if self.label is None else each.get(self.label) for each in self._part.properties]
        return [
            id_ if name is None else str(name)
            for name, (_, id_) in zip(labels, self._part.nodes, strict=True)
        ]


def require_height(height: int) -> int:
    """Refuse a picture that is too low to be used."""
    if height < LEAST_HEIGHT:
        raise InvalidValue(f"height must be at least {LEAST_HEIGHT}, got {height}")
    return height


def _describe_some(shown: int, found: int, word: str, *, complete: bool = True) -> str:
    word = word if found == 1 else f"{word}s"
    if complete:
        return f"{shown:,} {word}" if shown == found else f"{shown:,} of {found:,} {word}"
    return f"{shown:,} of {found:,} or more {word}"
