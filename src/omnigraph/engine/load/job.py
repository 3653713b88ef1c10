"""What the tasks of one load have in common; it travels to other processes."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.engine.layout import fnv1a64
from omnigraph.engine.root import Root, root_for
from omnigraph.engine.write.ids import LoadIds
from omnigraph.engine.write.read import LoadReader
from omnigraph.errors import PipelineCancelled
from omnigraph.lang.schema.identity import AcceptedSchema
from omnigraph.storage.location import Location


@dataclass(frozen=True, slots=True)
class LoadJob:
    """One load: which graph, by which schema, with which ids, and where its files wait."""

    uri: str
    accepted: AcceptedSchema
    ids: LoadIds
    scratch: str
    """Below the root; everything in it belongs to this load."""
    told: int
    """How many violations a task tells in words."""
    leaves_out: bool = False
    """Whether all rows that break a rule must be known, because the load goes on without them."""
    notes_all: bool = False
    """Whether every violation is wanted in words."""

    @property
    def root(self) -> Root:
        """The graph, as the process that runs a task reaches it."""
        return root_for(self.uri, self.scratch)

    def reader(self) -> LoadReader:
        """What reads the records; made anew for each task."""
        return LoadReader(self.accepted, self.ids)

    @property
    def place(self) -> Location:
        """Where the files of the load wait."""
        return self.root.layout.root / self.scratch

    def begin(self) -> None:
        """Note that the load goes on; tasks look for it."""
        self.root.objects.write_text(self._mark, "")

    def require(self) -> None:
        """What a task asks in the end: one that outlives its load must not leave anything behind."""
        if not self.root.objects.exists(self._mark):
            self.discard()
            raise PipelineCancelled("read")

    def discard(self) -> None:
        """Remove every file of the load that did not become part of a table."""
        self.root.objects.delete_prefix(self.place)

    @property
    def _mark(self) -> Location:
        return self.place / "open"

    def pieces(self, key: str) -> Location:
        """Where the rows of a type wait."""
        return self.place / f"rows/{fnv1a64(key)}"

    def lines(self, item: int, key: str) -> Location:
        """Where it is kept which line each row of a type came from."""
        return self.place / f"lines/{item}-{fnv1a64(key)}"

    def prints(self, name: str) -> Location:
        """Where hashes of ids wait."""
        return self.place / f"prints/{name}"

    def marks(self, name: str) -> Location:
        """Where it is marked which numbers are ids."""
        return self.place / f"marks/{name}"

    def notes(self, item: int, number: int) -> Location:
        """Where it is noted what is wrong with rows of an item."""
        return self.place / f"notes/{item}-{number}"

    def released(self, key: str, bucket: str) -> Location:
        """Where stored edges wait that the load replaces."""
        return self.place / f"released/{fnv1a64(key)}-{bucket}"
