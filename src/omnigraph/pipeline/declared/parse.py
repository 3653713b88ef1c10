"""A pipeline file as declarations: read strictly, each mistake with its line."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.errors import (
    BadRequest,
    FuturePhaseField,
    InvalidName,
    PipelineInvalid,
    PipelineSqlInvalid,
    PipelineTargetMissing,
    PipelineViewUnknown,
)
from omnigraph.lang.values import shorten_legibly
from omnigraph.pipeline.declared.declaration import (
    CheckpointKind,
    Destination,
    LoadMode,
    OnConflict,
    Parameter,
    Pipeline,
    Source,
    SparkNeeds,
    Strategy,
    Transform,
)
from omnigraph.pipeline.declared.document import encode_document
from omnigraph.pipeline.declared.maps import read_map
from omnigraph.pipeline.declared.members import Node, Problems, build_problem, parse_document, read_document
from omnigraph.pipeline.declared.sources import Provider, declared_source, read_provider, read_source
from omnigraph.pipeline.declared.sql import NotOneQuery, list_parameters, require_query
from omnigraph.pipeline.declared.surroundings import BesideFile, Surroundings

_LATER = ("schedule", "trigger")
_MEMBERS = {"spark", "params", "source", "sources", "transforms", "into", "checkpoint", *_LATER}
_TARGET_MEMBERS = {"graph", "map", "mode", "branch", "strategy", "on_conflict"}


def read_pipelines(path: str | os.PathLike[str]) -> dict[str, Pipeline]:
    """All pipelines of a file, by name; fails with everything that is wrong with it."""
    at = Path(path)
    return parse_file(read_document(at, str(path)), BesideFile(at.parent))


def parse_file(document: Node, surroundings: Surroundings) -> dict[str, Pipeline]:
    """All pipelines of a document, by name; fails with everything that is wrong with it."""
    members = _require_root(document).members({"version", "providers", "pipelines"}, ["pipelines"])
    if "version" in members and members["version"].value.value != 1:
        members["version"].refuse("is not known", "write `version: 1`")
    problems = Problems()
    providers = parse_providers(members.get("providers"), problems)
    found = parse_pipelines(members["pipelines"].object(), providers, surroundings, problems)
    problems.raise_if_any()
    if not found:
        members["pipelines"].refuse("has no pipeline")
    return found


def parse_pipelines(
    nodes: Mapping[str, Node],
    providers: Mapping[str, Provider],
    surroundings: Surroundings,
    problems: Problems,
) -> dict[str, Pipeline]:
    """The pipelines without a mistake, by name; all mistakes go to `problems`."""
    found = (_Reader(name, node, surroundings, providers, problems).read() for name, node in nodes.items())
    return {pipeline.name: pipeline for pipeline in found if pipeline is not None}


def read_pipeline(path: str | os.PathLike[str], name: str | None = None) -> Pipeline:
    """One pipeline of a file; its name may be left out where there is only one."""
    found = read_pipelines(path)
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        known = ", ".join(found)
        what = "has several pipelines" if name is None else f"has no pipeline '{shorten_legibly(name)}'"
        raise BadRequest(f"'{path}' {what}", remedy=f"name one with --pipeline: {known}")
    return found[name]


def _require_root(document: Node) -> Node:
    return (
        Node(document.value, "", document.file)
        if document.value.value is not None
        else _refuse_empty(document)
    )


def _refuse_empty(document: Node) -> Node:
    raise PipelineInvalid("the file is empty", file=document.file, remedy="write `pipelines:`")


def parse_providers(node: Node | None, problems: Problems) -> dict[str, Provider]:
    """The providers of sources, by name; mistakes go to `problems`."""
    found: dict[str, Provider] = {}
    if node is None:
        return found
    with problems.collect():
        members = node.members({"source"})
        for name, each in members["source"].object().items() if "source" in members else ():
            with problems.collect():
                found[name] = read_provider(each)
    return found


@dataclass(slots=True)
class _Reader:
    """Reads one pipeline; what is wrong goes to `problems`."""

    name: str
    node: Node
    surroundings: Surroundings
    providers: Mapping[str, Provider]
    problems: Problems

    def read(self) -> Pipeline | None:
        before = len(self.problems.found)
        with self.problems.collect():
            Node(replace(self.node.value, value=self.name), self.node.path, self.node.file).identifier()
            members = self.node.members(_MEMBERS, ["into"])
            for later in _LATER:
                if later in members:
                    members[later].refuse(
                        "is kept for later", "let a scheduler call `omnigraph pipeline run`", FuturePhaseField
                    )
            pipeline = self._read_pipeline(members)
            if len(self.problems.found) == before:
                # An invalid source is no view, which must not be reported a second time.
                self._check_views(pipeline)
            if len(self.problems.found) == before:
                return pipeline
        return None

    def _read_pipeline(self, members: Mapping[str, Node]) -> Pipeline:
        params = self._read_params(members.get("params"))
        nodes = self._source_nodes(members)
        sources = self._read_sources(nodes)
        transforms = self._read_transforms(members.get("transforms"), dict(params))
        into = self._read_destinations(members["into"])
        checkpoint = CheckpointKind.NONE
        if "checkpoint" in members:
            checkpoint = members["checkpoint"].choice(CheckpointKind)
        if checkpoint is CheckpointKind.WATERMARK and not any(one.watermark for one in sources):
            members["checkpoint"].refuse("needs a source with a `watermark`")
        pipeline = Pipeline(
            self.name,
            tuple(sources),
            tuple(transforms),
            tuple(into),
            params,
            checkpoint,
            self._read_spark_needs(members.get("spark")),
            cluster=self.surroundings.cluster,
            place=self.node.place,
        )
        declared = {one.name: declared_source(nodes[one.name], one) for one in sources}
        named = tuple(sorted({one["provider"] for one in declared.values() if "provider" in one}))
        # The providers of a cluster are resources of their own.
        own = {} if self.surroundings.cluster else {name: self.providers[name].profile() for name in named}
        return replace(pipeline, providers=named, document=encode_document(pipeline, declared, own))

    def _read_params(self, node: Node | None) -> tuple[tuple[str, Parameter], ...]:
        if node is None:
            return ()
        found: list[tuple[str, Parameter]] = []
        for name, member in node.object().items():
            if not isinstance(member.value.value, str | int | float | bool):
                member.refuse("must be a text, a number, true or false")
            found.append((name, member.value.value))
        return tuple(found)

    def _source_nodes(self, members: Mapping[str, Node]) -> dict[str, Node]:
        if ("source" in members) == ("sources" in members):
            self.node.refuse("needs either `source` or `sources`")
        single = members.get("source")
        return {"source": single} if single is not None else members["sources"].object()

    def _read_sources(self, nodes: Mapping[str, Node]) -> list[Source]:
        found: list[Source] = []
        for name, node in nodes.items():
            with self.problems.collect():
                Node(replace(node.value, value=name), node.path, node.file).name()
                found.append(read_source(name, node, self.providers, self.surroundings))
        return found

    def _read_transforms(self, node: Node | None, params: Mapping[str, Parameter]) -> list[Transform]:
        if node is None:
            return []
        return self.problems.read_each(node.items(), lambda item: self._read_transform(item, params))

    def _read_transform(self, node: Node, params: Mapping[str, Parameter]) -> Transform:
        members = node.members({"view", "sql", "query"}, ["view"])
        if ("sql" in members) == ("query" in members):
            node.refuse("needs either `sql`, a file, or `query`, a text")
        if "sql" in members:
            shown = members["sql"].text()
            text = self.surroundings.read_text(shown, members["sql"])
        else:
            text = members["query"].text()
        try:
            require_query(text)
            wanted = list_parameters(text)
        except NotOneQuery as wrong:
            node.refuse(str(wrong), "write one SELECT or WITH", PipelineSqlInvalid)
        if unknown := [name for name in wanted if name not in params]:
            node.refuse(
                f"uses a parameter ':{unknown[0]}' that is not there",
                "give it a value in `params`",
                PipelineSqlInvalid,
            )
        return Transform(members["view"].name(), text.strip().rstrip(";"), node.place)

    def _read_destinations(self, node: Node) -> list[Destination]:
        items = node.items()
        if not items:
            node.refuse("needs at least one graph")
        found: list[Destination] = self.problems.read_each(items, self._read_destination)
        for uri, times in Counter(one.uri for one in found).items():
            if times > 1:
                node.refuse(f"names the graph '{uri}' {times} times")
        return found

    def _read_destination(self, node: Node) -> Destination:
        members = node.members(_TARGET_MEMBERS, ["graph", "map"])
        graph = self.surroundings.find_graph(members["graph"], PipelineTargetMissing)
        mode = members["mode"].choice(LoadMode) if "mode" in members else LoadMode.MERGE
        strategy = members["strategy"].choice(Strategy) if "strategy" in members else Strategy.BRANCH_MERGE
        if strategy is Strategy.DIRECT and mode is not LoadMode.MERGE:
            members["strategy"].refuse("may be direct only with `mode: merge`, which can be repeated")
        try:
            branch = parse_branch_name(members["branch"].text()) if "branch" in members else "main"
        except InvalidName as wrong:
            node.refuse(f"names what cannot be: {wrong.message}", wrong.remedy)
        return Destination(
            graph.name,
            graph.uri,
            self._read_map(members["map"]),
            mode,
            branch,
            strategy,
            members["on_conflict"].choice(OnConflict) if "on_conflict" in members else OnConflict.FAIL,
            node.place,
        )

    def _read_map(self, node: Node) -> Any:
        if not isinstance(node.value.value, str):
            return read_map(node)
        shown = node.text()
        document = parse_document(self.surroundings.read_text(shown, node), shown)
        return read_map(Node(document.value, "map", shown))

    def _read_spark_needs(self, node: Node | None) -> SparkNeeds:
        if node is None:
            return SparkNeeds()
        members = node.members({"master", "conf", "packages"})
        return SparkNeeds(
            members["master"].text() if "master" in members else None,
            members["conf"].pairs() if "conf" in members else (),
            members["packages"].texts() if "packages" in members else (),
        )

    def _check_views(self, pipeline: Pipeline) -> None:
        views = [name.lower() for name in pipeline.list_views()]
        for name, times in Counter(views).items():
            if times > 1:
                self.node.refuse(f"has {times} sources and transforms with the name '{name}'")
        for target in pipeline.into:
            for entry in target.map:
                if entry.view.lower() not in views:
                    self.problems.found.append(
                        build_problem(
                            PipelineViewUnknown,
                            entry.place,
                            f"there is no view '{shorten_legibly(entry.view)}'",
                            f"it may be: {', '.join(pipeline.list_views())}",
                        )
                    )
