"""What the names in a declaration refer to: files beside it, and graphs by path or by id."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import InvalidName
from omnigraph.pipeline.declared.members import Node, Problem, read_text
from omnigraph.storage.location import Location


@dataclass(frozen=True, slots=True)
class GraphName:
    """A graph as a declaration names it, and where it is."""

    name: str
    uri: str


class Surroundings(Protocol):
    """Where a declaration stands."""

    @property
    def cluster(self) -> Location | None:
        """The root of the cluster that a declaration belongs to; None for a file of its own."""

    def read_text(self, shown: str, asked: Node) -> str:
        """Return the text of a file that the declaration names."""

    def locate_file(self, path: str, asked: Node) -> str:
        """Return the absolute path, or the URI, of files that a source reads."""

    def find_graph(self, asked: Node, missing: Problem) -> GraphName:
        """Return the graph that a member names; one that cannot be there is reported as `missing`."""


@dataclass(frozen=True, slots=True)
class BesideFile:
    """Paths count from the folder of the pipeline file; graphs are named by path or URI."""

    folder: Path
    cluster: None = None

    def read_text(self, shown: str, asked: Node) -> str:
        """Return the text of a file that the declaration names."""
        return read_text(self.folder / shown, shown, asked)

    def locate_file(self, path: str, asked: Node) -> str:
        """Return the absolute path, or the URI, of files that a source reads."""
        return at_folder(path, self.folder)

    def find_graph(self, asked: Node, missing: Problem) -> GraphName:
        """Return the graph that a member names."""
        text = asked.text()
        try:
            return GraphName(text, Location.parse(at_folder(text, self.folder)).uri)
        except InvalidName as wrong:
            asked.refuse(f"names what cannot be: {wrong.message}", wrong.remedy)


def at_folder(text: str, folder: Path) -> str:
    """A path as it is meant: a URI or an absolute path stays, any other counts from a folder."""
    return text if "://" in text else str((folder / text).absolute())
