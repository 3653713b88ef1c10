"""Every code of a finding, with what it means; docs/cluster.md has the same table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple


class Code(NamedTuple):
    """How severe a finding is unless the command decides otherwise, and what it means."""

    severity: Literal["error", "warning"]
    meaning: str


def _error(meaning: str) -> Code:
    return Code("error", meaning)


def _warning(meaning: str) -> Code:
    return Code("warning", meaning)


CODES: Mapping[str, Code] = {
    # cluster.yaml
    "cluster_config_missing": _error("there is no readable `cluster.yaml` in the directory"),
    "cluster_config_invalid": _error("`cluster.yaml` is not YAML, or has a member that is unknown or wrong"),
    "duplicate_yaml_key": _error("a mapping has the same key twice"),
    "future_phase_field": _error("a field is reserved and has no effect yet"),
    "removed_streaming_declaration": _error("`graphs.<id>.streaming` was removed"),
    "invalid_resource_id": _error("an id does not begin with a letter or `_`, or has other characters"),
    "graph_id_not_servable": _warning("a graph has an id that a server cannot route to"),
    "schema_file_missing": _error("a schema file cannot be read"),
    "schema_invalid": _error("a schema does not compile"),
    "query_file_missing": _error("a query file or directory cannot be read"),
    "query_parse_error": _error("a query file does not parse"),
    "query_type_error": _error("a query does not fit the desired schema of its graph"),
    "query_typecheck_skipped": _warning("queries were not checked because their schema does not compile"),
    "query_directory_empty": _warning("a directory of queries has no `.gq` file"),
    "duplicate_query_name": _error("two queries of a graph have the same name"),
    "query_key_mismatch": _error("a file has no query of the name it is listed under"),
    "policy_file_missing": _error("a policy file cannot be read"),
    "policy_invalid": _error("a policy bundle is wrong, or does not fit what it is bound to"),
    "policy_missing_applies_to": _error("a policy is bound to nothing"),
    "policy_mixed_binding_kinds": _error("a policy is bound to the cluster and to graphs"),
    "duplicate_policy_binding": _error("two policies are bound to the same scope"),
    "wrong_kind_reference": _error("a reference names another kind of resource"),
    "dangling_graph_reference": _error("a reference names a graph that is not declared"),
    "dangling_embedding_provider_reference": _error("a graph names a provider that is not declared"),
    "embedding_api_key_inline": _error("an API key is written out instead of `${NAME}`"),
    "embedding_api_key_required": _error("an embedding provider has no API key"),
    "external_blob_base_invalid": _error("a base of external blobs is wrong, or overlaps another"),
    "external_blob_ingress_default_deny": _warning("a graph accepts no external blobs"),
    "external_blob_allow_ineffective": _warning(
        "a graph allows external blobs, which it refuses all the same"
    ),
    # The ledger and its lock.
    "storage_failure": _error("the storage of the cluster failed"),
    "state_missing": _error("the cluster has no ledger; a warning in `status`"),
    "state_already_exists": _error("`import` found a ledger"),
    "invalid_state": _error("the ledger is not what this version writes"),
    "unsupported_state_version": _error("the ledger has another version"),
    "conflicting_graph_manifest_observation": _error("an observation has two different manifest versions"),
    "external_blob_policy_digest_mismatch": _error("a graph's digest does not follow from its parts"),
    "state_cas_mismatch": _error("the ledger was changed by another command meanwhile"),
    "state_lock_held": _error("another command holds the lock"),
    "state_lock_disabled": _warning("`state.lock: false`: commands do not exclude each other"),
    "state_lock_missing": _error("there is no lock to remove"),
    "state_lock_id_mismatch": _error("the lock has another id"),
    "invalid_state_lock": _error("the lock file is not what this version writes"),
    "unsupported_state_lock_version": _error("the lock file has another version"),
    # Pipelines.
    "pipeline_invalid": _error("a pipeline has a member that is unknown or wrong"),
    "pipeline_source_ambiguous": _error("a source is a single word, which may be a kind or a provider"),
    "pipeline_source_kind_unsupported": _error("a source is of a kind that cannot be read"),
    "source_secret_inline": _error("a secret stands in the file instead of `${NAME}`"),
    "source_secret_missing": _warning("a `${NAME}` of a pipeline is not set on this machine"),
    "pipeline_file_missing": _error("a file cannot be read, or a graph that is read is not declared"),
    "pipeline_target_missing": _error("a pipeline loads into a graph that is not declared"),
    "pipeline_type_unknown": _error("a map or a source names a type that its graph does not have"),
    "pipeline_property_unknown": _error("a map names a property that its type does not have"),
    "pipeline_property_type": _error("a map casts a property to a type that never fits"),
    "pipeline_key_unmapped": _error("a map leaves out a key property"),
    "pipeline_required_unmapped": _error("a map leaves out a property that must have a value"),
    "pipeline_endpoint_type": _error("edges have no ends, or ends that are no ids of their nodes"),
    "pipeline_view_unknown": _error("a map uses a view that is no source and no transform"),
    "pipeline_sql_invalid": _error("a statement is not one SELECT or WITH"),
    "pipeline_sql_check_skipped": _warning("the statements of a pipeline were not parsed by Spark"),
    # Plans.
    "cluster_recovery_pending": _warning("an interrupted operation on a graph waits for recovery"),
    "schema_preview_unavailable": _warning("a schema change could not be previewed on the live graph"),
    "apply_unsupported_change": _warning("a change is deferred"),
    "apply_dependency_blocked": _warning("a change is blocked"),
    "invalid_plan_file": _error("a stored plan cannot be read"),
    "plan_stale": _error("configuration, ledger or a live schema moved since the plan was stored"),
    # Approvals.
    "actor_required": _error("the command, or the applied policy of a graph, needs an actor"),
    "approval_not_required": _error("nothing about the resource needs an approval"),
    "approval_stale": _warning("an approval is bound to other digests and authorizes nothing"),
    "invalid_approval": _warning("an approval file cannot be read and authorizes nothing"),
    "approval_write_failed": _warning("a consumed approval could not be rewritten; the ledger has it"),
    # Apply.
    "apply_approval_invariant_violation": _error("a change was about to run without its approval"),
    "resource_content_changed": _error("a file changed while the command ran"),
    "graph_create_failed": _error("a graph could not be created"),
    "graph_create_skipped": _warning("a graph was not created because of an earlier failure"),
    "schema_apply_failed": _error("a schema could not be applied"),
    "schema_apply_skipped": _warning("a schema was not applied because of an earlier failure"),
    "graph_schema_moved": _error("the live schema changed between the plan and the apply"),
    "graph_delete_failed": _error("a graph could not be deleted"),
    "graph_delete_export_in_progress": _error("a graph is not deleted while an export of it runs"),
    "graph_delete_skipped": _warning("a graph was not deleted because of an earlier failure"),
    "payload_write_error": _error("a query, policy or pipeline could not be published"),
    "injected_failpoint": _error("a test interrupted the command"),
    # Recovery.
    "recovery_sidecar_read_error": _warning("a recovery file cannot be read"),
    "invalid_recovery_sidecar": _warning("a recovery file is not what this version writes"),
    "unsupported_recovery_sidecar_version": _warning("a recovery file has another version"),
    "recovery_sidecar_cleanup_failed": _warning("a finished recovery file could not be removed"),
    "cluster_recovery_rolled_forward": _warning("the ledger now has the result of an interrupted operation"),
    "graph_create_incomplete": _error("a graph was created in part and does not open"),
    "graph_delete_incomplete": _warning("a graph was deleted in part; the delete is proposed again"),
    # The catalog and live graphs.
    "catalog_payload_missing": _warning("a published query, policy or pipeline is gone"),
    "catalog_payload_mismatch": _warning("a published query, policy or pipeline was changed"),
    "catalog_payload_read_error": _error("a published query, policy or pipeline cannot be read"),
    "graph_observation_error": _error("a declared graph is there and cannot be opened"),
    # Server boot.
    "cluster_state_missing": _error("a server found no ledger"),
    "cluster_empty": _error("a server found a ledger without graphs"),
    "cluster_no_healthy_graphs": _error("no graph of the ledger can be served"),
    "cluster_recovery_unattributed": _error("a recovery file names no graph"),
    "catalog_payload_digest_mismatch": _error("a server found a published query or policy that was changed"),
    "policy_bindings_missing": _error("the ledger does not say what a policy is bound to"),
    "embedding_provider_missing": _error("a graph needs a provider that the ledger does not have"),
    "embedding_profile_missing": _error("the ledger has no profile of a provider"),
    "embedding_profile_digest_mismatch": _error("the profile of a provider does not have its digest"),
}
