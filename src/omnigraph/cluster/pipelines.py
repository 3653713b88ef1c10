"""The pipelines of a configuration: parsed and checked against the desired schemas, without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path

from omnigraph.cluster.addresses import graph_address, is_id, schema_address, source_address
from omnigraph.cluster.config import FILE, ClusterConfig, Declared
from omnigraph.cluster.diagnostics import Findings, Place, Severity, words
from omnigraph.cluster.digests import hash_bytes
from omnigraph.cluster.root import GRAPHS, SUFFIX
from omnigraph.cluster.source_files import Inlined, SourceFile
from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import PipelineInvalid
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.values import shorten_legibly
from omnigraph.pipeline.declared.check import check_map, check_types
from omnigraph.pipeline.declared.declaration import GraphSource, LoadMode, Pipeline
from omnigraph.pipeline.declared.members import Node, Problem, Problems, read_text
from omnigraph.pipeline.declared.parse import parse_pipelines
from omnigraph.pipeline.declared.secrets import REFERENCE
from omnigraph.pipeline.declared.sources import Provider, read_provider
from omnigraph.pipeline.declared.surroundings import GraphName, at_folder
from omnigraph.storage.location import Location


@dataclass(frozen=True, slots=True)
class InCluster:
    """Graphs are named by id; paths count from the directory of `cluster.yaml`, if there is one."""

    cluster: Location
    graphs: frozenset[str]
    directory: Path | None
    read: dict[str, SourceFile] = field(default_factory=dict)
    """The files that were read so far."""
    used: list[SourceFile] = field(default_factory=list)
    """Those of one declaration."""

    def read_text(self, shown: str, asked: Node) -> str:
        """Return the text of a file that the declaration names; each is read once."""
        if shown not in self.read:
            path = self._folder(asked) / shown
            data = read_text(path, shown, asked).encode()
            self.read[shown] = SourceFile(shown, path, data, hash_bytes(data))
        self.used.append(self.read[shown])
        return self.read[shown].data.decode()

    def locate_file(self, path: str, asked: Node) -> str:
        """Return the absolute path, or the URI, of files that a source reads."""
        if "://" in path or path.startswith("/"):
            return path
        return at_folder(path, self._folder(asked))

    def find_graph(self, asked: Node, missing: Problem) -> GraphName:
        """Return the graph that a member names by its id."""
        graph_id = asked.text().removeprefix("graph.")
        if not is_id(graph_id) or graph_id not in self.graphs:
            known = ", ".join(sorted(self.graphs)) or "none"
            shown = shorten_legibly(graph_id)
            asked.refuse(f"names a graph '{shown}' that is not declared", f"there are: {known}", missing)
        return GraphName(graph_id, (self.cluster / f"{GRAPHS}/{graph_id}{SUFFIX}").uri)

    def _folder(self, asked: Node) -> Path:
        if self.directory is None:
            asked.refuse(
                "is relative to the directory of `cluster.yaml`, which a storage root alone does not have",
                "name that directory with --config or --cluster",
            )
        return self.directory


@dataclass(frozen=True, slots=True)
class DesiredPipeline:
    """A pipeline that should exist, with what is published of it."""

    pipeline: Pipeline
    payload: Inlined

    @property
    def targets(self) -> tuple[str, ...]:
        """The addresses of the graphs that it loads into."""
        return tuple(graph_address(one.graph) for one in self.pipeline.into)

    @property
    def overwrites(self) -> bool:
        """Whether a run replaces rows that are stored."""
        return any(one.mode is LoadMode.OVERWRITE for one in self.pipeline.into)

    def dependencies(self) -> Iterator[str]:
        """The addresses of everything that it needs."""
        for one in self.pipeline.into:
            yield graph_address(one.graph)
            yield schema_address(one.graph)
        for source in self.pipeline.sources:
            if isinstance(source, GraphSource):
                yield graph_address(source.name_of_graph)
                yield schema_address(source.name_of_graph)
        yield from map(source_address, self.pipeline.providers)


def load_providers(config: ClusterConfig, findings: Findings) -> dict[str, Provider]:
    """Return the providers of sources without a mistake; the others are findings."""
    found: dict[str, Provider] = {}
    for name, declared in config.sources.items():
        problems = Problems()
        with problems.collect():
            found[name] = read_provider(_to_node(declared))
        _report(declared, problems, findings)
    return found


def load_pipelines(
    config: ClusterConfig,
    providers: Mapping[str, Provider],
    catalogs: Mapping[str, Catalog],
    findings: Findings,
) -> dict[str, DesiredPipeline]:
    """Return the pipelines of a configuration; every mistake is a finding."""
    read: dict[str, SourceFile] = {}
    found = {}
    for name, declared in config.pipelines.items():
        surroundings = InCluster(config.root, frozenset(config.graphs), config.directory, read)
        problems = Problems()
        parsed = parse_pipelines({name: _to_node(declared)}, providers, surroundings, problems).get(name)
        if parsed is not None:
            problems.found += _find_unfit(parsed, catalogs)
            data = parsed.document.encode()
            payload = Inlined(FILE, data, parsed.digest, tuple(surroundings.used))
            found[name] = DesiredPipeline(parsed, payload)
            _report_unset(declared, parsed, providers, findings)
        _report(declared, problems, findings)
    return found


def _to_node(declared: Declared) -> Node:
    return Node(declared.value, declared.path, FILE)


def _find_unfit(pipeline: Pipeline, catalogs: Mapping[str, Catalog]) -> Iterator[PipelineInvalid]:
    """Everything that the desired schemas do not allow; one that does not compile is a finding already."""
    for source in pipeline.sources:
        if isinstance(source, GraphSource) and source.name_of_graph in catalogs:
            yield from check_types(source, catalogs[source.name_of_graph])
    for target in pipeline.into:
        if target.graph in catalogs:
            yield from check_map(target, catalogs[target.graph])


def _report(declared: Declared, problems: Problems, findings: Findings) -> None:
    for one in problems.found:
        place = None if one.file is None else Place(one.file, one.line, one.column)
        message = (
            words(one) if place is None else words(one).removeprefix(f"{Place(place.file, place.line)}: ")
        )
        findings.add(one.code, declared.path, message, place, Severity.ERROR)


def _report_unset(
    declared: Declared, pipeline: Pipeline, providers: Mapping[str, Provider], findings: Findings
) -> None:
    """Note references that this machine cannot resolve; the one that runs the pipeline must."""
    texts = [pipeline.document, *(str(providers[name].profile()) for name in pipeline.providers)]
    names = {name for text in texts for name in REFERENCE.findall(text)}
    for name in sorted(names - os.environ.keys()):
        message = f"'{name}' is not set here; a run needs it in its environment"
        findings.add(
            "source_secret_missing",
            declared.path,
            message,
            Place(FILE, declared.value.line, declared.value.column),
        )
