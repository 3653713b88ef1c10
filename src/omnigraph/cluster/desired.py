"""What should exist: the typed resources of a configuration, with digests and dependencies.

Everything is checked offline: schemas compile, queries fit the desired schemas, policies fit their scopes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.cluster.addresses import (
    CLUSTER,
    Kind,
    graph_address,
    graph_of,
    is_id,
    kind_of,
    name_of,
    pipeline_address,
    policy_address,
    provider_address,
    query_address,
    schema_address,
    source_address,
)
from omnigraph.cluster.check_policy import check_policy
from omnigraph.cluster.config import ClusterConfig, GraphDeclaration, Located
from omnigraph.cluster.diagnostics import Findings, sentences
from omnigraph.cluster.digests import hash_config, hash_profile, hash_source_profile
from omnigraph.cluster.entries import Entry, compose_graphs
from omnigraph.cluster.read_config import read_config
from omnigraph.cluster.source_files import Inlined, SourceFile, SourceFiles
from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import CompileError
from omnigraph.lang.query import ast
from omnigraph.lang.query.compile import check_query
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Source

if TYPE_CHECKING:
    from omnigraph.cluster.pipelines import DesiredPipeline


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that should exist."""

    address: str
    kind: Kind
    entry: Entry
    file: SourceFile | Inlined | None = None

    @property
    def digest(self) -> str:
        """The digest of the resource."""
        return self.entry.digest

    def to_json(self) -> dict[str, Any]:
        """The resource as a script reads it."""
        found = {"address": self.address, "kind": str(self.kind), "digest": self.digest}
        return found if self.file is None else {**found, "path": self.file.shown}


@dataclass(frozen=True, slots=True)
class Dependency:
    """One resource needs another."""

    dependent: str
    dependency: str

    def to_json(self) -> dict[str, str]:
        """The edge as a script reads it."""
        return {"from": self.dependent, "to": self.dependency}


@dataclass(frozen=True, slots=True)
class Desired:
    """A configuration with all its resources."""

    config: ClusterConfig
    resources: Mapping[str, Resource]
    dependencies: tuple[Dependency, ...]
    config_digest: str
    catalogs: Mapping[str, Catalog] = field(default_factory=dict, repr=False)
    pipelines: Mapping[str, DesiredPipeline] = field(default_factory=dict, repr=False)

    def digests(self) -> dict[str, str]:
        """The digest of each resource."""
        return {address: one.digest for address, one in self.resources.items()}

    def dependents(self, address: str) -> list[str]:
        """The resources that need another one directly."""
        return sorted(one.dependent for one in self.dependencies if one.dependency == address)

    def graphs_of(self, address: str) -> frozenset[str]:
        """The graphs that a resource is about: its own, or those that it needs."""
        own = graph_of(address)
        if own is not None:
            return frozenset({own})
        needed = (graph_of(one.dependency) for one in self.dependencies if one.dependent == address)
        return frozenset(graph_id for graph_id in needed if graph_id is not None)

    def overwrites(self, address: str) -> bool:
        """Whether an address is that of a pipeline that replaces stored rows."""
        found = self.pipelines.get(name_of(address)) if kind_of(address) is Kind.PIPELINE else None
        return found is not None and found.overwrites


def load_desired(directory: Path, findings: Findings) -> Desired | None:
    """Read and check a configuration with all its files; None when `cluster.yaml` itself is wrong.

    What a mistake in another file leaves out is missing among the resources.
    """
    config = read_config(directory, findings)
    return None if config is None else _Loader(config, findings).load()


class _Loader:
    def __init__(self, config: ClusterConfig, findings: Findings) -> None:
        self._config = config
        self._findings = findings
        self._files = SourceFiles(config.directory, findings)
        self._parsed: dict[Path, tuple[Source, ast.QueryFile] | None] = {}
        self._resources: dict[str, Resource] = {}
        self._catalogs: dict[str, Catalog] = {}
        self._pipelines: dict[str, DesiredPipeline] = {}

    def load(self) -> Desired:
        for provider in self._config.providers.values():
            profile = provider.profile()
            entry = Entry(hash_profile(profile), embedding_profile=profile)
            self._add(provider.address, entry)
        for graph in self._config.graphs.values():
            self._graph(graph)
        self._compose_graphs()
        self._policies()
        self._load_pipelines()
        resources = dict(sorted(self._resources.items()))
        digests = {address: one.digest for address, one in resources.items()}
        edges = tuple(sorted(self._edges(), key=lambda edge: (edge.dependent, edge.dependency)))
        digest = hash_config(self._config.to_json(), digests)
        return Desired(self._config, resources, edges, digest, self._catalogs, self._pipelines)

    def _add(self, address: str, entry: Entry, file: SourceFile | Inlined | None = None) -> None:
        kind = kind_of(address)
        if kind is not None:
            self._resources[address] = Resource(address, kind, entry, file)

    # --- graphs ----------------------------------------------------------------------------------

    def _graph(self, graph: GraphDeclaration) -> None:
        self._schema(graph)
        self._check_queries(graph, dict(self._queries(graph)))
        if graph.blobs:
            message = f"graph '{graph.id}' refuses all external blobs, those below these bases too"
            path = f"graphs.{graph.id}.external_blobs"
            self._findings.add("external_blob_allow_ineffective", path, message, graph.place)

    def _compose_graphs(self) -> None:
        entries = {address: one.entry for address, one in self._resources.items()}
        wanted = {graph.id: _wanted(graph) for graph in self._config.graphs.values()}
        for address, entry in compose_graphs(wanted, entries).items():
            self._add(address, entry)

    def _schema(self, graph: GraphDeclaration) -> None:
        file = self._files.read(graph.schema, "schema_file_missing")
        if file is None:
            return
        self._add(schema_address(graph.id), Entry(file.digest), file)
        try:
            self._catalogs[graph.id] = compile_schema(Source.from_bytes(file.data, file.shown))
        except CompileError as error:
            self._report(error, "schema_invalid", graph.schema)

    def _queries(self, graph: GraphDeclaration) -> Iterator[tuple[str, tuple[ast.Query, Source, Located]]]:
        """Register the queries of a graph; yields each with its text."""
        seen: dict[str, str] = {}
        for declared in graph.query_files:
            for name in self._files.list_queries(declared):
                for query, source, file in self._read_queries(declared, name):
                    if query.name in seen:
                        message = f"query '{query.name}' is in '{seen[query.name]}' and in '{file.shown}'"
                        self._findings.add("duplicate_query_name", declared.path, message, declared.place)
                        continue
                    seen[query.name] = file.shown
                    self._add_query(graph, query.name, file)
                    yield query.name, (query, source, declared)
        for name, declared in graph.query_names.items():
            read = list(self._read_queries(declared, declared.text))
            own = next((one for one in read if one[0].name == name), None)
            if own is not None:
                self._add_query(graph, name, own[2])
                yield name, (own[0], own[1], declared)
            elif read or self._is_parsed(declared):
                message = f"'{declared.text}' has no query '{name}'"
                self._findings.add("query_key_mismatch", declared.path, message, declared.place)

    def _add_query(self, graph: GraphDeclaration, name: str, file: SourceFile) -> None:
        self._add(query_address(graph.id, name), Entry(file.digest), file)

    def _read_queries(self, declared: Located, name: str) -> Iterator[tuple[ast.Query, Source, SourceFile]]:
        file = self._files.read(declared, "query_file_missing", name)
        if file is None:
            return
        if file.path not in self._parsed:
            self._parsed[file.path] = self._parse(declared, file)
        parsed = self._parsed[file.path]
        if parsed is not None:
            for query in parsed[1].queries:
                if is_id(query.name):
                    yield query, parsed[0], file
                else:
                    message = f"'{file.shown}' has a query whose name is too long: '{query.name[:40]}...'"
                    self._findings.add("invalid_resource_id", declared.path, message, declared.place)

    def _is_parsed(self, declared: Located) -> bool:
        return self._parsed.get(self._config.resolve(declared.text)) is not None

    def _parse(self, declared: Located, file: SourceFile) -> tuple[Source, ast.QueryFile] | None:
        try:
            source = Source.from_bytes(file.data, file.shown)
            return source, parse_queries(source)
        except CompileError as error:
            self._report(error, "query_parse_error", declared)
            return None

    def _check_queries(
        self, graph: GraphDeclaration, queries: Mapping[str, tuple[ast.Query, Source, Located]]
    ) -> None:
        catalog = self._catalogs.get(graph.id)
        if catalog is None:
            if queries:
                message = f"{len(queries)} queries were not checked: the schema does not compile"
                self._findings.add(
                    "query_typecheck_skipped", f"graphs.{graph.id}.queries", message, graph.place
                )
            return
        for query, source, declared in queries.values():
            try:
                check_query(query, catalog, source)
            except CompileError as error:
                self._report(error, "query_type_error", declared)

    def _report(self, error: CompileError, code: str, declared: Located) -> None:
        for message, place in sentences(error):
            self._findings.add(code, declared.path, message, place or declared.place)

    # --- policies --------------------------------------------------------------------------------

    def _policies(self) -> None:
        for policy in self._config.policies.values():
            file = self._files.read(policy.file, "policy_file_missing")
            if file is not None:
                check_policy(policy, file, self._findings)
                self._add(policy_address(policy.name), Entry(file.digest, applies_to=policy.bindings), file)

    # --- pipelines -------------------------------------------------------------------------------

    def _load_pipelines(self) -> None:
        if not (self._config.sources or self._config.pipelines):
            return
        from omnigraph.cluster.pipelines import load_pipelines, load_providers

        providers = load_providers(self._config, self._findings)
        for name, provider in providers.items():
            profile = provider.profile()
            entry = Entry(hash_source_profile(profile), source_profile=profile)
            self._add(source_address(name), entry)
        self._pipelines = load_pipelines(self._config, providers, self._catalogs, self._findings)
        for name, one in self._pipelines.items():
            self._add(pipeline_address(name), Entry(one.payload.digest, targets=one.targets), one.payload)

    # --- dependencies ----------------------------------------------------------------------------

    def _edges(self) -> Iterator[Dependency]:
        for address, one in self._resources.items():
            graph_id = graph_of(address)
            if one.kind in (Kind.SCHEMA, Kind.QUERY):
                yield Dependency(address, graph_address(str(graph_id)))
            if one.kind is Kind.QUERY:
                yield Dependency(address, schema_address(str(graph_id)))
            if one.kind is Kind.GRAPH and one.entry.embedding_provider is not None:
                yield Dependency(address, one.entry.embedding_provider)
            if one.kind is Kind.POLICY:
                for binding in one.entry.applies_to or ():
                    if binding != CLUSTER:
                        yield Dependency(address, binding)
            if one.kind is Kind.PIPELINE:
                for needed in sorted(set(self._pipelines[name_of(address)].dependencies())):
                    yield Dependency(address, needed)


def _wanted(graph: GraphDeclaration) -> Entry:
    """Return provider and blob policy of a graph; its digest comes later."""
    named = graph.embedding_provider
    provider = None if named is None else provider_address(name_of(named.text))
    bases = [{"uri": one.uri, "scope": one.scope.value} for one in graph.blobs]
    blobs = {"mode": "allow", "bases": bases} if bases else None
    return Entry("", embedding_provider=provider, external_blob_policy=blobs)
