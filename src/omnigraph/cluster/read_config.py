"""`cluster.yaml` into a `ClusterConfig`; every rule about the file alone is checked here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omnigraph.cluster.addresses import CLUSTER, graph_address, is_id, is_servable
from omnigraph.cluster.blob_bases import read_blob_bases
from omnigraph.cluster.config import (
    FILE,
    ClusterConfig,
    Declared,
    GraphDeclaration,
    Located,
    PolicyDeclaration,
    Provider,
    ProviderKind,
)
from omnigraph.cluster.diagnostics import Findings, Severity, sentences
from omnigraph.cluster.yaml_node import INVALID, Node
from omnigraph.errors import OmnigraphError, YamlInvalid
from omnigraph.yaml_text import read_yaml, read_yaml_text

FUTURE = ("apply", "env_file", "embeddings", "ui", "aliases", "bindings")
_TOP = ("version", "metadata", "storage", "state", "providers", "graphs", "policies", "pipelines")
_GRAPH = ("schema", "queries", "embedding_provider", "external_blobs")
_SECRET = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def read_config(directory: Path, findings: Findings) -> ClusterConfig | None:
    """Read the `cluster.yaml` of a directory; None when a finding is an error."""
    top = _parse(directory, findings)
    if top is None:
        return None
    _report_reserved(top)
    if not findings.ok:
        return None
    before = len(findings.found)
    config = _ConfigReader(directory, top).read()
    return None if any(one.severity is Severity.ERROR for one in findings.found[before:]) else config


def _parse(directory: Path, findings: Findings) -> Node | None:
    try:
        value = read_yaml(read_yaml_text(directory / FILE), FILE)
    except OSError as failure:
        message = f"'{directory / FILE}' cannot be read: {failure.strerror}"
        findings.add("cluster_config_missing", FILE, message)
    except UnicodeDecodeError:
        findings.add(INVALID, FILE, "the file is not UTF-8")
    except YamlInvalid as error:
        [(message, place)] = sentences(error)
        code = INVALID if error.duplicate_key is None else "duplicate_yaml_key"
        findings.add(code, error.duplicate_key or FILE, message, place)
    else:
        return Node(value, "", FILE, findings)
    return None


def _report_reserved(top: Node) -> None:
    """Note fields that are not for now, before the strict parse calls them unknown."""
    if not isinstance(top.value.value, dict):
        return
    members = top.object()
    for name in FUTURE:
        if name in members:
            members[name].report_name(f"`{name}` is reserved and has no effect yet", "future_phase_field")
    graphs = members.get("graphs")
    if graphs is None or not isinstance(graphs.value.value, dict):
        return
    for graph in graphs.object().values():
        if isinstance(graph.value.value, dict) and "streaming" in graph.value.value:
            graph.object()["streaming"].report_name(
                "`streaming` was removed; remove it from the file", "removed_streaming_declaration"
            )


class _ConfigReader:
    """Reads one file; what it returns counts only if there was no error."""

    def __init__(self, directory: Path, top: Node) -> None:
        self._directory = directory
        self._top = top
        self._graphs: dict[str, GraphDeclaration] = {}

    def read(self) -> ClusterConfig:
        top = self._top.members(_TOP, required=("version",))
        if "version" in top and top["version"].value.value != 1:
            top["version"].report("must be 1")
        metadata = top["metadata"].members(("name",)) if "metadata" in top else {}
        state = top["state"].members(("backend", "lock")) if "state" in top else {}
        backend = state["backend"].text() if "backend" in state else None
        if backend not in (None, "cluster"):
            state["backend"].report("must be `cluster`")
        groups = self._groups(top.get("providers"))
        providers = dict(self._providers(groups))
        self._graphs = dict(self._read_graphs(top.get("graphs"), providers))
        policies = dict(self._policies(top.get("policies")))
        return ClusterConfig(
            self._directory,
            metadata["name"].text() if "name" in metadata else None,
            self._storage(top.get("storage")),
            backend,
            state["lock"].flag() if "lock" in state else None,
            providers,
            self._graphs,
            policies,
            self._declared(groups.get("source")),
            self._declared(top.get("pipelines")),
        )

    def _storage(self, node: Node | None) -> str | None:
        storage = None if node is None else node.text()
        if node is not None and storage is not None:
            try:
                _ = ClusterConfig(self._directory, None, storage, None, None, {}, {}, {}).root
            except OmnigraphError as error:
                node.report(error.message)
        return storage

    # --- providers -------------------------------------------------------------------------------

    def _groups(self, node: Node | None) -> dict[str, Node]:
        return {} if node is None else node.members(("embedding", "source"))

    def _declared(self, node: Node | None) -> dict[str, Declared]:
        """Take pipelines and providers of sources as they are: their own room reads them."""
        found = {} if node is None else node.resources()
        return {name: Declared(name, one.value, one.path) for name, one in found.items()}

    def _providers(self, groups: dict[str, Node]) -> Iterator[tuple[str, Provider]]:
        if "embedding" in groups:
            for name, one in groups["embedding"].resources().items():
                yield name, self._provider(name, one)

    def _provider(self, name: str, node: Node) -> Provider:
        members = node.members(("kind", "provider", "base_url", "model", "api_key"))
        if "kind" in members and "provider" in members:
            members["provider"].report_name("`provider` is another name of `kind`; write one of them")
        named = members.get("kind") or members.get("provider")
        kind = (None if named is None else named.choice(ProviderKind)) or ProviderKind.OPENAI_COMPATIBLE
        key = members["api_key"].text() if "api_key" in members else None
        if key is not None and not _SECRET.fullmatch(key):
            message = "must be a reference such as ${EMBEDDING_KEY}; secrets do not belong into the file"
            members["api_key"].report(message, "embedding_api_key_inline")
        if "api_key" not in members and kind is not ProviderKind.MOCK:
            node.report_name(f"a provider of kind {kind} needs an `api_key`", "embedding_api_key_required")
        url, model = (members[each].text() if each in members else None for each in ("base_url", "model"))
        return Provider(name, kind, url, model, key)

    # --- graphs ----------------------------------------------------------------------------------

    def _read_graphs(
        self, node: Node | None, providers: dict[str, Provider]
    ) -> Iterator[tuple[str, GraphDeclaration]]:
        for graph_id, one in ({} if node is None else node.resources()).items():
            if not is_servable(graph_id):
                message = f"a server has no routes for '{graph_id}': use 1 to 64 letters, digits and '-'"
                one.report_name(message, "graph_id_not_servable")
            members = one.members(_GRAPH, required=("schema",))
            schema = members["schema"].located() if "schema" in members else None
            queries = members.get("queries")
            named = self._named_queries(queries)
            if schema is None:
                continue
            yield (
                graph_id,
                GraphDeclaration(
                    graph_id,
                    schema,
                    tuple(self._query_files(queries)),
                    named,
                    _written(queries),
                    self._provider_reference(members.get("embedding_provider"), providers),
                    read_blob_bases(members.get("external_blobs")),
                    one.name_place,
                ),
            )

    def _query_files(self, node: Node | None) -> Iterator[Located]:
        if node is None or isinstance(node.value.value, dict):
            return
        for item in node.items() if isinstance(node.value.value, list) else [node]:
            if (file := item.located()) is not None:
                yield file

    def _named_queries(self, node: Node | None) -> dict[str, Located]:
        if node is None or not isinstance(node.value.value, dict):
            return {}
        found = {}
        for name, one in node.resources().items():
            members = one.members(("file",), required=("file",))
            file = members["file"].located() if "file" in members else None
            if file is not None:
                found[name] = file
        return found

    def _provider_reference(self, node: Node | None, providers: dict[str, Provider]) -> Located | None:
        found = None if node is None else node.located()
        if node is None or found is None:
            return None
        name = found.text.removeprefix("provider.embedding.")
        if not is_id(name):
            node.report(f"'{found.text}' is no embedding provider", "wrong_kind_reference")
        elif name not in providers:
            message = f"embedding provider '{name}' is not declared"
            node.report(message, "dangling_embedding_provider_reference")
        return found

    # --- policies --------------------------------------------------------------------------------

    def _policies(self, node: Node | None) -> Iterator[tuple[str, PolicyDeclaration]]:
        taken: dict[str, str] = {}
        for name, one in ({} if node is None else node.resources()).items():
            members = one.members(("file", "applies_to"), required=("file",))
            file = members["file"].located() if "file" in members else None
            scopes = members.get("applies_to")
            bindings = self._bindings(one if scopes is None else scopes)
            for binding in bindings:
                if binding in taken and scopes is not None:
                    message = f"'{binding}' is bound by policy '{taken[binding]}' already"
                    scopes.report(message, "duplicate_policy_binding")
                taken.setdefault(binding, name)
            if file is not None:
                yield name, PolicyDeclaration(name, file, _texts(scopes), bindings)

    def _bindings(self, node: Node) -> tuple[str, ...]:
        items = node.items() if isinstance(node.value.value, list) else []
        if not items:
            message = "list `cluster`, or the graphs that the policy is for"
            node.report(message, "policy_missing_applies_to")
        found = {self._binding(item, text) for item in items if (text := item.text()) is not None}
        if CLUSTER in found and len(found) > 1:
            message = "a policy is for the cluster or for graphs, not for both"
            node.report(message, "policy_mixed_binding_kinds")
        return tuple(sorted(found))

    def _binding(self, item: Node, text: str) -> str:
        if text == CLUSTER:
            return CLUSTER
        graph_id = text.removeprefix("graph.")
        if not is_id(graph_id):
            item.report(f"'{text}' is neither `cluster` nor a graph", "wrong_kind_reference")
        elif graph_id not in self._graphs:
            item.report(f"graph '{graph_id}' is not declared", "dangling_graph_reference")
        return graph_address(graph_id)


def _written(node: Node | None) -> Any:
    return None if node is None else node.value.plain()


def _texts(node: Node | None) -> tuple[str, ...]:
    found = _written(node)
    return tuple(map(str, found)) if isinstance(found, list) else ()
