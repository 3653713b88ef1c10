"""What a server reads of a cluster: each row of what ends a boot, and of what leaves a graph out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph import failpoints
from omnigraph.cluster.serving import Serving, read_serving
from omnigraph.errors import ClusterUnreadable
from tests.cluster.deployment import (
    CONFIG,
    GONE,
    GRAPH_POLICY,
    QUERY,
    TWO_GRAPHS,
    WIDER,
    Deployment,
    Json,
    codes,
    leave_sidecar,
)


def serving(deployment: Deployment) -> Serving:
    return read_serving(str(deployment.folder))


def refusal(deployment: Deployment) -> str:
    """Return the code that ends a boot."""
    with pytest.raises(ClusterUnreadable) as refused:
        serving(deployment)
    return refused.value.message.partition("cannot be used: ")[2].partition(":")[0]


def published(deployment: Deployment, kind: str) -> Path:
    [found] = (deployment.control / "resources" / kind).rglob("*.*")
    return found


def test_applied_revision_is_served_and_never_the_files(applied: Deployment) -> None:
    applied.write("queries/people.gq", QUERY.replace("$p.name", "$p.age"))
    applied.write("server.yaml", "no policy")
    found = serving(applied)
    [graph] = found.graphs
    assert (graph.id, graph.uri) == ("knowledge", str(applied.graph()))
    assert [(one.text, one.symbols) for one in graph.queries] == [(QUERY, ("people",))]
    assert graph.embedding == {"kind": "mock"}
    assert graph.policy is None
    assert {scope: one.name for scope, one in found.policies.items()} == {"cluster": "policy.server"}
    assert found.quarantined == ()


def test_storage_uri_needs_no_files(applied: Deployment) -> None:
    expected = serving(applied)
    for path in applied.folder.iterdir():
        if path.is_file():
            path.unlink()
    assert read_serving(f"file://{applied.folder}") == expected


def test_queries_of_one_file_are_read_once(applied: Deployment) -> None:
    applied.write("queries/people.gq", QUERY + QUERY.replace("people", "others"))
    assert applied.apply("ann")["converged"]
    [graph] = serving(applied).graphs
    assert [one.symbols for one in graph.queries] == [("others", "people")]


def test_graph_and_server_have_their_own_policies(applied: Deployment) -> None:
    applied.configure(CONFIG + "  editors: {file: editors.yaml, applies_to: [knowledge]}\n")
    applied.write("editors.yaml", GRAPH_POLICY)
    assert applied.apply("ann")["converged"]
    found = serving(applied)
    assert found.graphs[0].policy is not None
    assert (found.graphs[0].policy.name, found.graphs[0].policy.text) == ("policy.editors", GRAPH_POLICY)


def test_held_lock_is_ignored(applied: Deployment) -> None:
    expected = serving(applied)
    applied.write("__cluster/lock.json", "{}")
    assert serving(applied) == expected


def _drop_bindings(state: Json) -> None:
    del state["applied_revision"]["resources"]["policy.server"]["applies_to"]


def _drop_profile(state: Json) -> None:
    del state["applied_revision"]["resources"]["provider.embedding.local"]["embedding_profile"]


def _change_profile(state: Json) -> None:
    state["applied_revision"]["resources"]["provider.embedding.local"]["embedding_profile"] = {
        "kind": "gemini"
    }


def _change_digest(state: Json) -> None:
    state["applied_revision"]["resources"]["graph.knowledge"]["digest"] = "0" * 64


def _bind_twice(state: Json) -> None:
    resources = state["applied_revision"]["resources"]
    resources["policy.another"] = {**resources["policy.server"]}


def _empty(state: Json) -> None:
    state["applied_revision"]["resources"] = {}


@pytest.mark.parametrize(
    ("edit", "code"),
    [
        (_drop_bindings, "policy_bindings_missing"),
        (_drop_profile, "embedding_profile_missing"),
        (_change_profile, "embedding_profile_digest_mismatch"),
        (_change_digest, "external_blob_policy_digest_mismatch"),
        (_empty, "cluster_empty"),
    ],
)
def test_wrong_ledger_ends_the_boot(applied: Deployment, edit: Callable[[Json], None], code: str) -> None:
    applied.edit_state(edit)
    assert refusal(applied) == code


def test_two_policies_of_one_scope_end_the_boot(applied: Deployment) -> None:
    applied.edit_state(_bind_twice)
    copy = published(applied, "policy")
    applied.write(f"__cluster/resources/policy/another/{copy.name}", copy.read_text(encoding="utf-8"))
    assert refusal(applied) == "duplicate_policy_binding"


def test_provider_that_the_ledger_does_not_have_ends_the_boot(applied: Deployment) -> None:
    # The digest of the graph follows from the parts that are there, as after an edit by hand.
    from omnigraph.cluster.state import decode_state, encode_state

    state = decode_state((applied.control / "state.json").read_text(encoding="utf-8"))
    without = state.forget("provider.embedding.local").compose("knowledge")
    applied.write("__cluster/state.json", encode_state(without))
    assert refusal(applied) == "embedding_provider_missing"


@pytest.mark.parametrize("kind", ["query", "policy"])
def test_published_copy_that_is_gone_or_changed_ends_the_boot(applied: Deployment, kind: str) -> None:
    copy = published(applied, kind)
    text = copy.read_text(encoding="utf-8")
    copy.write_text(text + "\n", encoding="utf-8")
    assert refusal(applied) == "catalog_payload_digest_mismatch"
    copy.unlink()
    assert refusal(applied) == "catalog_payload_missing"


def test_ledger_that_is_missing_or_unreadable_ends_the_boot(applied: Deployment) -> None:
    state = applied.control / "state.json"
    state.write_text("{", encoding="utf-8")
    assert refusal(applied) == "invalid_state"
    state.unlink()
    assert refusal(applied) == "cluster_state_missing"


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"graph_id": ""}, "cluster_recovery_unattributed"),
        ({"schema_version": 2}, "unsupported_recovery_sidecar_version"),
        ({"kind": "graph_rename"}, "invalid_recovery_sidecar"),
        ({}, "cluster_no_healthy_graphs"),
    ],
)
def test_recovery_file_that_concerns_all_graphs_ends_the_boot(
    applied: Deployment, members: Json, code: str
) -> None:
    leave_sidecar(applied, **members)
    assert refusal(applied) == code


def test_graph_that_waits_for_recovery_is_left_out_alone(applied: Deployment) -> None:
    applied.configure(TWO_GRAPHS)
    assert applied.apply("ann")["converged"]
    # The schema has left the ledger behind, as after a kill between the two.
    applied.configure(TWO_GRAPHS.replace("second: {schema: knowledge.pg", "second: {schema: second.pg"))
    applied.write("second.pg", WIDER)
    point = failpoints.CLUSTER_APPLY_AFTER_SCHEMA_APPLY
    with failpoints.arm(point, failpoints.error(point)):
        assert codes(applied.apply("ann"), "error") == ["injected_failpoint"]
    found = serving(applied)
    assert [one.id for one in found.graphs] == ["knowledge"]
    assert [(one.code, one.path) for one in found.quarantined] == [
        ("cluster_recovery_pending", "graph.second")
    ]
    assert applied.apply("ann")["converged"]
    assert [one.id for one in serving(applied).graphs] == ["knowledge", "second"]


def test_copies_of_a_graph_that_is_left_out_are_not_asked_for(applied: Deployment) -> None:
    applied.configure(TWO_GRAPHS)
    assert applied.apply("ann")["converged"]
    leave_sidecar(applied, graph_id="second")
    for copy in (applied.control / "resources" / "query" / "second").rglob("*.gq"):
        copy.unlink()
    assert [one.id for one in serving(applied).graphs] == ["knowledge"]


def test_deleted_graph_is_not_served(applied: Deployment) -> None:
    applied.configure(TWO_GRAPHS.replace("  knowledge:", "  first:"))
    applied.write("queries/people.gq", QUERY)
    assert applied.approve("graph.knowledge")["ok"]
    assert applied.apply("ann")["converged"]
    assert [one.id for one in serving(applied).graphs] == ["first", "second"]
    applied.configure(GONE)
    assert applied.approve("graph.first")["ok"]
    assert applied.approve("graph.second")["ok"]
    assert applied.apply("ann")["converged"]
    assert refusal(applied) == "cluster_empty"


def test_changed_schema_alone_changes_what_is_served(applied: Deployment) -> None:
    [before] = serving(applied).graphs
    applied.write("knowledge.pg", WIDER)
    assert applied.apply("ann")["converged"]
    [after] = serving(applied).graphs
    assert before.digest != after.digest
    assert (before.queries, before.policy) == (after.queries, after.policy)


@pytest.mark.parametrize("edit", [_drop_bindings, _drop_profile])
def test_ledger_of_an_older_release_is_completed_by_an_apply(
    applied: Deployment, edit: Callable[[Json], None]
) -> None:
    expected = serving(applied)
    applied.edit_state(edit)
    result = applied.apply("ann")
    assert (result["converged"], result["state_written"]) == (True, True)
    assert serving(applied) == expected
