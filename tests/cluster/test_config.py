"""Each mistake in a configuration is reported with its code, member, file, line and column."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omnigraph.cluster import source_files
from tests.cluster.deployment import CONFIG, QUERY, Deployment, codes

GRAPH = "version: 1\ngraphs:\n  knowledge:\n    schema: knowledge.pg\n"

CASES = Path(__file__).with_name("mistakes.txt").read_text(encoding="utf-8")
MISTAKES = {
    name: (text, expected.strip())
    for block in CASES.split("== ")[1:]
    for name, _, rest in [block.partition("\n")]
    for text, _, expected in [rest.partition("-> ")]
}
"""The text of a configuration, and the finding it must lead to; a case is a block of the file."""

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


def test_bases_of_blobs_allow_nothing_yet_and_every_command_says_so(fresh: Deployment) -> None:
    fresh.configure(f"{GRAPH}    external_blobs: {{allow: [{{base: s3://b/x, scope: server_safe}}]}}\n")
    for result in (fresh.validate(), fresh.plan()):
        assert result["ok"]
        assert codes(result) == ["external_blob_allow_ineffective"]


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


def test_names_that_no_file_can_have_are_findings(fresh: Deployment) -> None:
    long = "k" * 300
    fresh.configure(CONFIG.replace("queries/", long))
    assert codes(fresh.validate(), "error") == ["query_file_missing"]
    fresh.configure(CONFIG.replace("knowledge:", f"{long}:"))
    assert codes(fresh.validate(), "error") == ["invalid_resource_id"]
    fresh.configure(CONFIG)
    fresh.write("queries/long.gq", QUERY.replace("people", long[:210]))
    assert shown(fresh.validate()) == ["invalid_resource_id graphs.knowledge.queries cluster.yaml:8:14"]


def test_files_without_an_end_are_not_read(fresh: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(fresh.folder / "pipe.pg")
    for name in ("/dev/zero", "pipe.pg"):
        fresh.configure(CONFIG.replace("knowledge.pg", name))
        assert codes(fresh.validate(), "error") == ["schema_file_missing"]
    fresh.configure(CONFIG)
    monkeypatch.setattr(source_files, "MAX_FILE_BYTES", 10)
    assert codes(fresh.validate(), "error") == [
        "schema_file_missing",
        "query_file_missing",
        "policy_file_missing",
    ]


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
