"""A pipeline against what is there: files, graphs, branches, types, properties; all of it without Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
from pyarrow import types as kinds

from omnigraph import graph
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.load.sources.arrow_columns import is_convertible
from omnigraph.errors import (
    BadRequest,
    GraphNotFound,
    PipelineEndpointType,
    PipelineFileMissing,
    PipelineInvalid,
    PipelineKeyUnmapped,
    PipelinePropertyType,
    PipelinePropertyUnknown,
    PipelineRequiredUnmapped,
    PipelineSchemaDrift,
    PipelineTargetMissing,
    PipelineTypeUnknown,
)
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.types import INTEGERS
from omnigraph.lang.values import shorten_legibly
from omnigraph.pipeline.declared.declaration import (
    EDGE,
    Destination,
    EntityMap,
    FileSource,
    GraphSource,
    Pipeline,
)
from omnigraph.pipeline.declared.members import Problem, Problems, build_problem
from omnigraph.pipeline.declared.sql import plain_cast
from omnigraph.pipeline.table_scan import resolve_table

_PATTERN = re.compile(r"[*?\[{]")
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\(\s*\d+\s*(?:,\s*(?P<scale>\d+)\s*)?\))?")
_ARROW: dict[str, pa.DataType] = {
    **dict.fromkeys(("tinyint", "byte", "smallint", "short", "int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "binary": pa.large_binary(),
    "date": pa.date32(),
    **dict.fromkeys(("timestamp", "timestamp_ntz", "timestamp_ltz"), pa.timestamp("us", "UTC")),
}


def check(pipeline: Pipeline) -> None:
    """Fail with everything that does not fit."""
    problems = Problems()
    for source in pipeline.sources:
        with problems.collect():
            if isinstance(source, FileSource):
                _check_files(source)
            elif isinstance(source, GraphSource):
                _check_graph(source)
    unfit: list[PipelineInvalid] = []
    for target in pipeline.into:
        with problems.collect():
            found = check_map(target, catalog_of(target))
            unfit += found
            problems.found += found
    if unfit and pipeline.cluster is not None:
        # It did fit when it was applied: the schema of a graph is another one now.
        raise PipelineSchemaDrift(pipeline.name, unfit)
    problems.raise_if_any()


def catalog_of(target: Destination) -> Catalog:
    """The schema of a target; fails when the graph or the branch is not there."""
    try:
        with graph.open(target.uri, read_only=True) as opened:
            if target.branch not in opened.branches:
                raise build_problem(
                    PipelineTargetMissing,
                    target.place,
                    f"graph '{target.graph}' has no branch '{target.branch}'",
                    f"make it with `omnigraph branch create {target.branch} --store {target.uri}`",
                )
            return opened.schema
    except GraphNotFound as absent:
        raise build_problem(PipelineTargetMissing, target.place, absent.message, absent.remedy) from None


def check_map(target: Destination, catalog: Catalog) -> list[PipelineInvalid]:
    """Everything in a map that the schema of its graph does not allow."""
    return [problem for entry in target.map for problem in _EntryCheck(entry, catalog).find_problems()]


def arrow_type(name: str) -> pa.DataType | None:
    """The Arrow type of a simple type of Spark SQL; None for those that are not simple."""
    if found := _DECIMAL.fullmatch(name):
        # A load takes decimals without a fraction as integers, and no others.
        return pa.int64() if int(found["scale"] or 0) == 0 else pa.decimal128(38, int(found["scale"]))
    return _ARROW.get(name)


def _check_files(source: FileSource) -> None:
    if not source.path or "://" in source.path or _PATTERN.search(source.path) or Path(source.path).exists():
        return
    raise build_problem(
        PipelineFileMissing,
        source.place,
        f"source '{source.name}': there is nothing at '{source.path}'",
        "check the path",
    )


def _check_graph(source: GraphSource) -> None:
    try:
        with graph.open(source.graph, read_only=True) as opened:
            snapshot = (
                opened.snapshot(source.branch) if source.commit is None else opened.at(commit=source.commit)
            )
            for name in source.types:
                resolve_table(snapshot, name)
    except GraphNotFound as absent:
        raise build_problem(PipelineFileMissing, source.place, absent.message, absent.remedy) from None
    except BadRequest as wrong:
        raise build_problem(PipelineTypeUnknown, source.place, wrong.message, wrong.remedy) from None


def check_types(source: GraphSource, catalog: Catalog) -> list[PipelineInvalid]:
    """Types of a graph that a source reads and the schema of the graph does not have."""
    known = {*catalog.nodes, *catalog.edges}
    known |= {f"node:{name}" for name in catalog.nodes} | {f"edge:{name}" for name in catalog.edges}
    return [
        build_problem(
            PipelineTypeUnknown,
            source.place,
            f"graph '{source.name_of_graph}' has no type '{shorten_legibly(name)}'",
            f"it has: {', '.join([*catalog.nodes, *catalog.edges])}",
        )
        for name in source.types
        if name not in known
    ]


@dataclass(frozen=True, slots=True)
class _EntryCheck:
    entry: EntityMap
    catalog: Catalog

    def find_problems(self) -> list[PipelineInvalid]:
        owner = self._find_type()
        if owner is None:
            known = sorted(self.catalog.edges if self.entry.kind == EDGE else self.catalog.nodes)
            return [
                self._build_problem(
                    PipelineTypeUnknown,
                    f"there is no {self.entry.kind} type '{shorten_legibly(self.entry.type)}'",
                    f"it may be: {', '.join(known)}",
                )
            ]
        found = [*self._find_unknown(owner), *self._find_unmapped(owner), *self._check_casts(owner)]
        return [*found, *self._check_ends(owner)] if isinstance(owner, EdgeType) else found

    def _find_type(self) -> NodeType | EdgeType | None:
        kinds_of: dict[str, NodeType] | dict[str, EdgeType] = (
            dict(self.catalog.edges) if self.entry.kind == EDGE else dict(self.catalog.nodes)
        )
        return kinds_of.get(self.entry.type)

    def _build_problem(self, kind: Problem, message: str, remedy: str | None = None) -> PipelineInvalid:
        return build_problem(kind, self.entry.place, message, remedy)

    def _find_unknown(self, owner: NodeType | EdgeType) -> list[PipelineInvalid]:
        return [
            self._build_problem(
                PipelinePropertyUnknown,
                f"{self.entry.kind} type '{owner.name}' has no property '{shorten_legibly(name)}'",
                f"it has: {', '.join(owner.properties)}",
            )
            for name, _ in self.entry.properties
            if name not in owner.properties
        ]

    def _find_unmapped(self, owner: NodeType | EdgeType) -> list[PipelineInvalid]:
        mapped = dict(self.entry.properties)
        keys = owner.key
        found = []
        for name, declared in owner.properties.items():
            if name in mapped:
                continue
            label = f"'{name}' of {self.entry.kind} type '{owner.name}'"
            if name in keys:
                found.append(self._build_problem(PipelineKeyUnmapped, f"key property {label} is not mapped"))
            elif not declared.type.nullable:
                found.append(
                    self._build_problem(
                        PipelineRequiredUnmapped, f"property {label} must have a value and is not mapped"
                    )
                )
        return found

    def _check_casts(self, owner: NodeType | EdgeType) -> list[PipelineInvalid]:
        """Plain casts show their type without Spark; others are checked when Spark analyses them."""
        found = []
        for name, expression in self.entry.properties:
            given = self._find_cast_type(expression)
            if given is None or name not in owner.properties:
                continue
            wanted = owner.properties[name].type
            if not is_convertible(given, wanted):
                found.append(
                    self._build_problem(
                        PipelinePropertyType,
                        f"property '{name}' of type '{owner.name}' is {wanted}, not {plain_cast(expression)}",
                    )
                )
        return found

    def _check_ends(self, owner: EdgeType) -> list[PipelineInvalid]:
        found = []
        for end, expression, node in (
            ("src", self.entry.src, owner.source),
            ("dst", self.entry.dst, owner.target),
        ):
            given = None if expression is None else self._find_cast_type(expression)
            if given is None or kinds.is_string(given):
                continue
            if not (kinds.is_integer(given) and self._has_integer_ids(node)):
                found.append(
                    self._build_problem(
                        PipelineEndpointType, f"`{end}` of edge type '{owner.name}' is no id of a '{node}'"
                    )
                )
        return found

    def _has_integer_ids(self, node: str) -> bool:
        owner = self.catalog.nodes[node]
        return len(owner.key) == 1 and owner.properties[owner.key[0]].type.scalar in INTEGERS

    def _find_cast_type(self, expression: str) -> pa.DataType | None:
        name = plain_cast(expression)
        return None if name is None else arrow_type(name)
