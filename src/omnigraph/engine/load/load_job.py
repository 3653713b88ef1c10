"""What the tasks of one load have in common; it travels to other processes."""

from __future__ import annotations

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import fnv1a64
from omnigraph.engine.graph.root import Root, shared_root
from omnigraph.engine.rows.ids import LoadIds
from omnigraph.engine.rows.row_builder import LoadReader
from omnigraph.errors import PipelineCancelled
from omnigraph.lang.schema.identity import AcceptedSchema
from omnigraph.storage.location import Location


@dataclass(frozen=True, slots=True)
class LoadJob:
    """One load: which graph, by which schema, with which ids, and where its files are staged."""

    uri: str
    accepted: AcceptedSchema
    ids: LoadIds
    scratch: str
    """Below the root; everything in it belongs to this load."""
    report_limit: int
    """How many violations a task reports one by one."""
    skips_bad: bool = False
    """Whether all rows that break a rule must be known, because the load goes on without them."""
    keeps_all: bool = False
    """Whether every violation is written to a file."""
    patches: bool = False
    """Whether rows may omit properties, which they then take from the stored row."""
    attempt: str = ""
    """Distinguishes files of tasks that may run twice on different rows; they answer with the names."""

    @property
    def root(self) -> Root:
        """The graph, as the process that runs a task reaches it."""
        return shared_root(self.uri, self.scratch)

    def reader(self) -> LoadReader:
        """The reader of the records, a new one for each task."""
        return LoadReader(self.accepted, self.ids, patches=self.patches)

    @property
    def place(self) -> Location:
        """Where the files of the load are staged."""
        return self.root.layout.root / self.scratch

    def begin(self) -> None:
        """Mark the load as running; tasks check the mark."""
        self.root.objects.write_text(self._mark, "")

    def require(self) -> None:
        """Fail a task that outlived its load, after removing what it left behind."""
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
        """Where the rows of a type are staged."""
        return self.place / f"rows/{fnv1a64(key)}"

    def lines(self, item: int, key: str) -> Location:
        """Where the line numbers of the rows of a type are stored."""
        return self.place / f"lines/{item}-{fnv1a64(key)}"

    def id_hashes(self, name: str) -> Location:
        """Where id hashes are stored."""
        return self.place / f"prints/{name}"

    def bitmaps(self, name: str) -> Location:
        """Where bitmaps of numeric ids are stored."""
        return self.place / f"marks/{name}"

    def violations(self, item: int, number: int) -> Location:
        """Where the violations of an item are stored."""
        return self.place / f"notes/{item}-{number}"

    def released(self, key: str, bucket: str) -> Location:
        """Where the stored edges that the load replaces are kept."""
        return self.place / f"released/{fnv1a64(key)}-{bucket}"
