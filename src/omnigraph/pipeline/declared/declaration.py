"""A declared pipeline as a value: sources, transforms, and what becomes which type of which graph."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import EntityKind, table_key
from omnigraph.storage.location import Location

NODE: EntityKind = "node"
EDGE: EntityKind = "edge"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is written: a file, and line and column if they are known."""

    file: str
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Watermark:
    """A column that only grows, by which a run knows what an earlier one has read."""

    column: str
    type: str
    """Its type in Spark SQL."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """What one format of Spark reads: files, in most cases."""

    name: str
    format: str
    """As Spark knows it, or `table:` and the name of a table in Spark's catalog."""
    path: str
    """Absolute, or a URI; empty if the format needs none."""
    options: tuple[tuple[str, str], ...] = ()
    watermark: Watermark | None = None
    place: Place = field(default=Place(""), compare=False)


@dataclass(frozen=True, slots=True)
class JdbcSource:
    """A table of a database, or what a query finds there."""

    name: str
    url: str
    table: str | None = None
    query: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    """Secrets among them are still written `${NAME}`."""
    watermark: Watermark | None = None
    place: Place = field(default=Place(""), compare=False)


@dataclass(frozen=True, slots=True)
class GraphSource:
    """Types of a graph at one moment."""

    name: str
    graph: str
    """Where it is."""
    name_of_graph: str
    """As it is written in the file."""
    types: tuple[str, ...]
    branch: str = "main"
    commit: str | None = None
    """A commit to read; the newest of the branch if there is none."""
    place: Place = field(default=Place(""), compare=False)
    watermark: None = None

    def list_views(self) -> dict[str, str]:
        """The type behind each view: one type has the name of the source, several have theirs behind it."""
        if len(self.types) == 1:
            return {self.name: self.types[0]}
        return {f"{self.name}_{name.replace(':', '_')}": name for name in self.types}


Source = FileSource | JdbcSource | GraphSource


@dataclass(frozen=True, slots=True)
class Transform:
    """A view that is made by a statement."""

    view: str
    sql: str
    place: Place = field(default=Place(""), compare=False)


@dataclass(frozen=True, slots=True)
class EntityMap:
    """What the rows of a view become; values are Spark SQL expressions over its columns."""

    kind: EntityKind
    type: str
    view: str
    properties: tuple[tuple[str, str], ...] = ()
    where: str | None = None
    id: str | None = None
    src: str | None = None
    dst: str | None = None
    place: Place = field(default=Place(""), compare=False)

    @property
    def key(self) -> str:
        """The table of the type."""
        return table_key(self.kind, self.type)

    def map_columns(self) -> dict[str, str]:
        """All expressions by the column they make."""
        ends = {"id": self.id, "src": self.src, "dst": self.dst}
        return {**{name: text for name, text in ends.items() if text is not None}, **dict(self.properties)}


class LoadMode(StrEnum):
    """What a load does with what is stored already."""

    MERGE = "merge"
    APPEND = "append"
    OVERWRITE = "overwrite"


class Strategy(StrEnum):
    """How rows come to the branch: all at once by a merge, or by the load itself."""

    BRANCH_MERGE = "branch_merge"
    DIRECT = "direct"


class OnConflict(StrEnum):
    """What becomes of the staging branch when it cannot be merged."""

    FAIL = "fail"
    KEEP_BRANCH = "keep_branch"


class CheckpointKind(StrEnum):
    """Whether a run goes on where the last one ended."""

    NONE = "none"
    WATERMARK = "watermark"


@dataclass(frozen=True, slots=True)
class Destination:
    """A graph that gets rows."""

    graph: str
    """As it is written in the file."""
    uri: str
    """The same, absolute."""
    map: tuple[EntityMap, ...]
    mode: LoadMode = LoadMode.MERGE
    branch: str = "main"
    strategy: Strategy = Strategy.BRANCH_MERGE
    on_conflict: OnConflict = OnConflict.FAIL
    place: Place = field(default=Place(""), compare=False)

    @property
    def name(self) -> str:
        """Its name in records and options."""
        return f"graph.{self.graph}"

    def by_table(self) -> dict[str, list[EntityMap]]:
        """The entries of each type, nodes before edges."""
        found: dict[str, list[EntityMap]] = {}
        for entry in sorted(self.map, key=lambda one: one.kind == EDGE):
            found.setdefault(entry.key, []).append(entry)
        return found


@dataclass(frozen=True, slots=True)
class SparkNeeds:
    """The Spark a pipeline wants."""

    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    packages: tuple[str, ...] = ()

    def list_settings(self) -> dict[str, str]:
        """The settings of a session that is made for it."""
        packages = {"spark.jars.packages": ",".join(self.packages)} if self.packages else {}
        return {**packages, **dict(self.conf)}


Parameter = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One declared pipeline."""

    name: str
    sources: tuple[Source, ...]
    transforms: tuple[Transform, ...]
    into: tuple[Destination, ...]
    params: tuple[tuple[str, Parameter], ...] = ()
    checkpoint: CheckpointKind = CheckpointKind.NONE
    spark: SparkNeeds = field(default_factory=SparkNeeds)
    providers: tuple[str, ...] = ()
    """The providers that its sources name."""
    document: str = field(default="", repr=False)
    """The normalized declaration with the text of every file it names."""
    cluster: Location | None = None
    """The root of the cluster that applied it; None for a pipeline of a file."""
    place: Place = field(default=Place(""), compare=False)

    @property
    def digest(self) -> str:
        """Equal for two declarations exactly when they say the same."""
        return hashlib.sha256(self.document.encode()).hexdigest()

    @property
    def home(self) -> str:
        """What keeps the records of runs: the cluster, or the graph that is the first target of a file."""
        return self.into[0].uri if self.cluster is None else self.cluster.uri

    def list_views(self) -> list[str]:
        """Every view there is, in the order they are made."""
        made: list[str] = []
        for source in self.sources:
            made += source.list_views() if isinstance(source, GraphSource) else [source.name]
        return [*made, *(transform.view for transform in self.transforms)]


def to_canonical_json(value: Mapping[str, Any]) -> str:
    """A text that is equal for equal values, whatever their order."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
