"""Each mistake in a configuration is reported with its code, member, file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.deployment import CONFIG, QUERY, Deployment, codes

GRAPH = "version: 1\ngraphs:\n  knowledge:\n    schema: knowledge.pg\n"
POLICY = f"{GRAPH}policies:\n  base:\n    file: server.yaml\n"

# fmt: off
MISTAKES = {
    "no version": ("graphs: {}\n", "cluster_config_invalid cluster.yaml cluster.yaml:1:1"),
    "another version": ("version: 2\n", "cluster_config_invalid version cluster.yaml:1:10"),
    "unknown member": ("version: 1\nshape: 1\n", "cluster_config_invalid shape cluster.yaml:2:1"),
    "unknown member below": (f"{GRAPH}    color: red\n", "cluster_config_invalid graphs.knowledge.color cluster.yaml:5:5"),
    "no YAML": ("version: [1\n", "cluster_config_invalid cluster.yaml cluster.yaml:2:1"),
    "a list": ("- 1\n", "cluster_config_invalid cluster.yaml cluster.yaml:1:1"),
    "blank name": ("version: 1\nmetadata: {name: ' '}\n", "cluster_config_invalid metadata.name cluster.yaml:2:18"),
    "another backend": ("version: 1\nstate: {backend: etcd}\n", "cluster_config_invalid state.backend cluster.yaml:2:18"),
    "lock is a word": ("version: 1\nstate: {lock: sometimes}\n", "cluster_config_invalid state.lock cluster.yaml:2:15"),
    "storage elsewhere": ("version: 1\nstorage: ftp://host/x\n", "cluster_config_invalid storage cluster.yaml:2:10"),
    "no schema": ("version: 1\ngraphs:\n  knowledge: {}\n", "cluster_config_invalid graphs.knowledge cluster.yaml:3:14"),
    "key twice": ("version: 1\ngraphs: {}\ngraphs: {}\n", "duplicate_yaml_key graphs cluster.yaml:3:1"),
    "key twice below": (f"{GRAPH}    schema: other.pg\n", "duplicate_yaml_key schema cluster.yaml:5:5"),
    **{
        f"future {name}": (f"version: 1\n{name}: {{}}\n", f"future_phase_field {name} cluster.yaml:2:1")
        for name in ("apply", "env_file", "pipelines", "embeddings", "ui", "aliases", "bindings")
    },
    "streaming": (f"{GRAPH}    streaming: true\n", "removed_streaming_declaration graphs.knowledge.streaming cluster.yaml:5:5"),
    "id of a graph": ("version: 1\ngraphs:\n  1st: {schema: knowledge.pg}\n", "invalid_resource_id graphs.1st cluster.yaml:3:3"),
    "id of a query": (f"{GRAPH}    queries: {{a.b: {{file: queries/people.gq}}}}\n", "invalid_resource_id graphs.knowledge.queries.a.b cluster.yaml:5:15"),
    "schema file": (GRAPH.replace("knowledge.pg", "none.pg"), "schema_file_missing graphs.knowledge.schema cluster.yaml:4:13"),
    "query file": (f"{GRAPH}    queries: none.gq\n", "query_file_missing graphs.knowledge.queries cluster.yaml:5:14"),
    "query of another name": (f"{GRAPH}    queries: {{others: {{file: queries/people.gq}}}}\n", "query_key_mismatch graphs.knowledge.queries.others.file cluster.yaml:5:30"),
    "query twice": (f"{GRAPH}    queries: [queries/, queries/people.gq]\n", "duplicate_query_name graphs.knowledge.queries[1] cluster.yaml:5:25"),
    "policy file": (f"{GRAPH}policies:\n  base: {{file: none.yaml, applies_to: [cluster]}}\n", "policy_file_missing policies.base.file cluster.yaml:6:16"),
    "policy of another kind": (f"{POLICY}    applies_to: [knowledge]\n", "policy_invalid policies.base.file server.yaml:2:7"),
    "policy bound to nothing": (f"{POLICY}    applies_to: []\n", "policy_missing_applies_to policies.base.applies_to cluster.yaml:8:17"),
    "policy without bindings": (POLICY, "policy_missing_applies_to policies.base cluster.yaml:7:5"),
    "policy bound to both": (f"{POLICY}    applies_to: [cluster, knowledge]\n", "policy_mixed_binding_kinds policies.base.applies_to cluster.yaml:8:17"),
    "scope bound twice": (f"{POLICY}    applies_to: [cluster]\n  more: {{file: server.yaml, applies_to: [cluster]}}\n", "duplicate_policy_binding policies.more.applies_to cluster.yaml:9:41"),
    "bound to a query": (f"{POLICY}    applies_to: [query.knowledge.people]\n", "wrong_kind_reference policies.base.applies_to[0] cluster.yaml:8:18"),
    "bound to no graph": (f"{POLICY}    applies_to: [graph.other]\n", "dangling_graph_reference policies.base.applies_to[0] cluster.yaml:8:18"),
    "no provider": (f"{GRAPH}    embedding_provider: fast\n", "dangling_embedding_provider_reference graphs.knowledge.embedding_provider cluster.yaml:5:25"),
    "provider of another kind": (f"{GRAPH}    embedding_provider: graph.knowledge\n", "wrong_kind_reference graphs.knowledge.embedding_provider cluster.yaml:5:25"),
    "key written out": ("version: 1\nproviders: {embedding: {a: {kind: openai, api_key: sk-1}}}\n", "embedding_api_key_inline providers.embedding.a.api_key cluster.yaml:2:52"),
    "key missing": ("version: 1\nproviders: {embedding: {a: {model: m}}}\n", "embedding_api_key_required providers.embedding.a cluster.yaml:2:25"),
    "provider of no kind": ("version: 1\nproviders: {embedding: {a: {kind: own, api_key: '${K}'}}}\n", "cluster_config_invalid providers.embedding.a.kind cluster.yaml:2:35"),
    "other providers": ("version: 1\nproviders: {storage: {}}\n", "cluster_config_invalid providers.storage cluster.yaml:2:13"),
}

# fmt: on

BASES = {
    "credentials": "s3://key:secret@bucket/x/",
    "a query": "s3://bucket/x/?versionId=1",
    "a fragment": "https://host/x#part",
    "a traversal": "s3://bucket/x/../y/",
    "an escaped traversal": "s3://bucket/x/%2e%2e/y/",
    "another scheme": "ftp://host/x/",
    "a file for servers": "file:///data/",
    "no bucket": "s3:///x/",
}


def shown(result: dict[str, object]) -> list[str]:
    found = result["diagnostics"]
    assert isinstance(found, list)
    return [
        f"{one['code']} {one['path']} {one['file']}:{one['line']}:{one['column']}"
        for one in found
        if one["severity"] == "error"
    ]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_reported_at_its_place(fresh: Deployment, name: str) -> None:
    text, expected = MISTAKES[name]
    fresh.configure(text)
    result = fresh.validate()
    assert not result["ok"]
    assert expected in shown(result)
    assert all(line.partition(" ")[0] == expected.partition(" ")[0] for line in shown(result))


@pytest.mark.parametrize("name", BASES)
def test_a_base_of_blobs_is_rejected(fresh: Deployment, name: str) -> None:
    blobs = f"    external_blobs: {{allow: [{{base: '{BASES[name]}', scope: server_safe}}]}}\n"
    fresh.configure(GRAPH + blobs)
    assert shown(fresh.validate()) == [
        "external_blob_base_invalid graphs.knowledge.external_blobs.allow[0].base cluster.yaml:5:37"
    ]


def test_bases_of_blobs_must_not_overlap(fresh: Deployment) -> None:
    allow = "[{base: s3://B/x, scope: server_safe}, {base: s3://b//x/y/, scope: embedded_only}]"
    fresh.configure(f"{GRAPH}    external_blobs: {{allow: {allow}}}\n")
    assert codes(fresh.validate(), "error") == ["external_blob_base_invalid"]


def test_no_configuration_is_a_finding(tmp_path: Path) -> None:
    result = Deployment(tmp_path).validate()
    assert codes(result) == ["cluster_config_missing"]
    assert result["config_file"] == str(tmp_path / "cluster.yaml")


def test_mistakes_in_other_files_have_their_places(fresh: Deployment) -> None:
    fresh.write("knowledge.pg", "node Person {\n  name: Strin @key\n}\n")
    fresh.write("queries/broken.gq", "query broken( {\n")
    result = fresh.validate()
    assert codes(result, "error") == ["schema_invalid", "query_parse_error"]
    assert "query_typecheck_skipped" in codes(result, "warning")
    assert [line.rpartition(" ")[2].partition(":")[0] for line in shown(result)] == [
        "knowledge.pg",
        "queries/broken.gq",
    ]


def test_a_query_must_fit_the_desired_schema(fresh: Deployment) -> None:
    fresh.write("queries/more.gq", "query q() { match { $p: Person } return { $p.height } }\n")
    assert shown(fresh.validate()) == ["query_type_error graphs.knowledge.queries queries/more.gq:1:43"]


def test_warnings_leave_a_configuration_valid(fresh: Deployment) -> None:
    fresh.configure("version: 1\ngraphs: {under_score: {schema: knowledge.pg, queries: empty/}}\n")
    (fresh.folder / "empty").mkdir()
    result = fresh.validate()
    assert result["ok"]
    assert codes(result) == [
        "graph_id_not_servable",
        "query_directory_empty",
        "external_blob_ingress_default_deny",
    ]


def test_resources_and_dependencies_are_listed(fresh: Deployment) -> None:
    fresh.write("queries/two.gq", QUERY.replace("people", "a") + QUERY.replace("people", "b"))
    result = fresh.validate()
    assert result["ok"]
    assert {one["address"]: (one["kind"], one.get("path")) for one in result["resources"]} == {
        "graph.knowledge": ("graph", None),
        "policy.server": ("policy", "server.yaml"),
        "provider.embedding.local": ("embedding_provider", None),
        "query.knowledge.a": ("query", "queries/two.gq"),
        "query.knowledge.b": ("query", "queries/two.gq"),
        "query.knowledge.people": ("query", "queries/people.gq"),
        "schema.knowledge": ("schema", "knowledge.pg"),
    }
    assert {"from": "graph.knowledge", "to": "provider.embedding.local"} in result["dependencies"]
    assert {"from": "query.knowledge.a", "to": "schema.knowledge"} in result["dependencies"]
    digests = result["resource_digests"]
    assert digests["query.knowledge.a"] == digests["query.knowledge.b"], "the digest is that of the file"


def test_paths_may_be_absolute_and_lists_of_queries_are_read(fresh: Deployment) -> None:
    at = fresh.folder / "queries" / "people.gq"
    text = CONFIG.replace("queries: queries/", f"queries: ['{at}']")
    fresh.configure(text)
    assert "query.knowledge.people" in fresh.validate()["resource_digests"]
