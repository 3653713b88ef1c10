"""Named points in the code where a test can raise, wait, run something or end the process.

In this process: `with armed(FORK_BEFORE_RECLAIM, action): ...`. In a child process, through its environment:
`OMNIGRAPH_FAILPOINTS="fork.before_reclaim=exit;fork.before_classify=error"`; `exit` ends the process at
once, as a kill would, with status 86; `error` raises; `stop` stops the process until it is sent SIGCONT.
With nothing armed a point costs next to nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from omnigraph import errors

SETTING = "OMNIGRAPH_FAILPOINTS"
EXIT_STATUS = 86

INIT_AFTER_SCHEMA_PG_WRITTEN: Final = "init.after_schema_pg_written"
INIT_AFTER_SCHEMA_CONTRACT_WRITTEN: Final = "init.after_schema_contract_written"
INIT_AFTER_COORDINATOR_INIT: Final = "init.after_coordinator_init"
INIT_MANIFEST_CREATE_ACK_LOST: Final = "init.manifest_create_ack_lost"

GRAPH_PUBLISH_BEFORE_COMMIT_APPEND: Final = "graph_publish.before_commit_append"
GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT: Final = "graph_publish.after_manifest_commit"
PUBLISH_LOAD_STATE_RETRYABLE_CONTENTION: Final = "publish.load_state_retryable_contention"

BRANCH_CREATE_AFTER_MANIFEST_BRANCH_CREATE: Final = "branch_create.after_manifest_branch_create"
BRANCH_CREATE_BEFORE_REWIND: Final = "branch_create.before_rewind"
BRANCH_DELETE_POST_NATIVE: Final = "branch_delete.post_native"
BRANCH_DELETE_BEFORE_TABLE_CLEANUP: Final = "branch_delete.before_table_cleanup"

FORK_BEFORE_CLASSIFY: Final = "fork.before_classify"
FORK_BEFORE_RECLAIM: Final = "fork.before_reclaim"
FORK_POST_CREATE_PRE_OPEN: Final = "fork.post_create_pre_open"
CLASSIFY_FRESH_READ: Final = "classify.fresh_read"

MUTATION_POST_STAGE_PRE_EFFECT_GATE: Final = "mutation.post_stage_pre_effect_gate"
MUTATION_POST_NO_EFFECT_PRE_GATE: Final = "mutation.post_no_effect_pre_gate"
MUTATION_POST_SIDECAR_PRE_FORK: Final = "mutation.post_sidecar_pre_fork"
MUTATION_POST_FORK_PRE_COMMIT: Final = "mutation.post_fork_pre_commit"
MUTATION_BETWEEN_TABLE_VERSIONS: Final = "mutation.between_table_versions"
MUTATION_POST_TABLE_COMMIT: Final = "mutation.post_table_commit"
MUTATION_POST_FINALIZE_PRE_PUBLISHER: Final = "mutation.post_finalize_pre_publisher"

BRANCH_MERGE_POST_AUTHORITY_CAPTURE: Final = "branch_merge.post_authority_capture"
BRANCH_MERGE_POST_CANDIDATE_VALIDATION: Final = "branch_merge.post_candidate_validation"
BRANCH_MERGE_ADOPT_AFTER_UPSERT_PRE_DELETE: Final = "branch_merge.adopt_after_upsert_pre_delete"
BRANCH_MERGE_POST_EFFECTS_PRE_CONFIRM: Final = "branch_merge.post_effects_pre_confirm"
BRANCH_MERGE_POST_PHASE_B_PRE_MANIFEST_COMMIT: Final = "branch_merge.post_phase_b_pre_manifest_commit"

SCHEMA_APPLY_POST_SIDECAR_PRE_EFFECT: Final = "schema_apply.post_sidecar_pre_effect"
SCHEMA_APPLY_BEFORE_STAGING_WRITE: Final = "schema_apply.before_staging_write"
SCHEMA_APPLY_AFTER_STAGING_WRITE: Final = "schema_apply.after_staging_write"
SCHEMA_APPLY_AFTER_MANIFEST_COMMIT: Final = "schema_apply.after_manifest_commit"
SCHEMA_APPLY_BEFORE_REMOVAL: Final = "schema_apply.before_removal"

ENSURE_INDICES_POST_STAGE_PRE_COMMIT_BTREE: Final = "ensure_indices.post_stage_pre_commit_btree"
ENSURE_INDICES_POST_EFFECTS_PRE_CONFIRM: Final = "ensure_indices.post_effects_pre_confirm"
ENSURE_INDICES_POST_PHASE_B_PRE_MANIFEST_COMMIT: Final = "ensure_indices.post_phase_b_pre_manifest_commit"

OPTIMIZE_BEFORE_COMPACT: Final = "optimize.before_compact"
OPTIMIZE_INJECT_REINDEX_CONFLICT: Final = "optimize.inject_reindex_conflict"
OPTIMIZE_POST_PHASE_B_PRE_MANIFEST_COMMIT: Final = "optimize.post_phase_b_pre_manifest_commit"

CHANGE_FEED_POST_CAPTURE: Final = "change_feed.post_capture"
CHANGE_FEED_PRE_TABLE_OPEN: Final = "change_feed.pre_table_open"

CLEANUP_RESOLVE_BRANCH_SNAPSHOT: Final = "cleanup.resolve_branch_snapshot"
CLEANUP_RECONCILE_FORK: Final = "cleanup.reconcile_fork"
CLEANUP_TABLE_GC: Final = "cleanup.table_gc"

RECOVERY_SIDECAR_WRITE: Final = "recovery.sidecar_write"
RECOVERY_SIDECAR_CONFIRM: Final = "recovery.sidecar_confirm"
RECOVERY_SIDECAR_DELETE: Final = "recovery.sidecar_delete"
RECOVERY_SIDECAR_LIST: Final = "recovery.sidecar_list"
RECOVERY_POST_SIDECAR_LIST_PRE_READ: Final = "recovery.post_sidecar_list_pre_read"
RECOVERY_BEFORE_ROLL_FORWARD_PUBLISH: Final = "recovery.before_roll_forward_publish"
RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH: Final = "recovery.post_table_restore_pre_publish"
RECOVERY_RECORD_AUDIT: Final = "recovery.record_audit"
RECOVERY_ORPHAN_DISCARD_AUDIT_APPEND: Final = "recovery.orphan_discard_audit_append"

PIPELINE_BEFORE_ADOPTION: Final = "pipeline.before_adoption"
PIPELINE_AFTER_ADOPTION: Final = "pipeline.after_adoption"
PIPELINE_AFTER_START: Final = "pipeline.after_start"
PIPELINE_AFTER_STAGE: Final = "pipeline.after_stage"
PIPELINE_AFTER_MERGE: Final = "pipeline.after_merge"
PIPELINE_BEFORE_CHECKPOINT: Final = "pipeline.before_checkpoint"
PIPELINE_AFTER_CHECKPOINT: Final = "pipeline.after_checkpoint"

CLUSTER_APPLY_BEFORE_GRAPH_CREATE: Final = "cluster_apply.before_graph_create"
CLUSTER_APPLY_AFTER_GRAPH_CREATE: Final = "cluster_apply.after_graph_create"
CLUSTER_APPLY_BEFORE_SCHEMA_APPLY: Final = "cluster_apply.before_schema_apply"
CLUSTER_APPLY_AFTER_SCHEMA_APPLY: Final = "cluster_apply.after_schema_apply"
CLUSTER_APPLY_AFTER_PAYLOAD_PHASE: Final = "cluster_apply.after_payload_phase"
CLUSTER_APPLY_BEFORE_GRAPH_DELETE: Final = "cluster_apply.before_graph_delete"
CLUSTER_APPLY_AFTER_GRAPH_DELETE: Final = "cluster_apply.after_graph_delete"
CLUSTER_APPLY_BEFORE_STATE_WRITE: Final = "cluster_apply.before_state_write"

QUERY_APART: Final = "query.apart"

MIGRATION_V3_TO_V4_LEGACY_OPEN: Final = "migration.v3_to_v4.legacy_open"
MIGRATION_V4_STAMP_FORCE_INCOMPATIBLE: Final = "migration.v4_stamp.force_incompatible"

NAMES: Final = frozenset(
    value
    for name, value in list(globals().items())
    if name.isupper() and isinstance(value, str) and "." in value
)
"""Every point, by the name a user of the environment variable writes."""

Action = Callable[[], object]
"""What happens at a point; its result is ignored."""

_mutex = threading.Lock()
_armed: dict[str, Action] = {}


def reach(name: str) -> None:
    """Say that execution has come to the point `name`."""
    if _armed:
        action = _armed.get(name)
        if action is not None:
            action()


@contextmanager
def arm(name: str, action: Action) -> Iterator[None]:
    """Run `action` whenever `name` is reached while the block lasts, in every thread of this process."""
    _require_known(name)
    with _mutex:
        if name in _armed:
            raise errors.BadRequest(f"failpoint '{name}' is armed already")
        _armed[name] = action
    try:
        yield
    finally:
        with _mutex:
            del _armed[name]


def error(name: str) -> Action:
    """An action that raises, naming the point."""

    def act() -> None:
        raise errors.InternalError(f"injected failure at '{name}'")

    return act


def once(action: Action) -> Action:
    """An action that acts the first time only, however many threads arrive."""
    left = threading.Semaphore(1)

    def act() -> None:
        if left.acquire(blocking=False):
            action()

    return act


def end_process() -> None:
    """An action that ends the process at once: nothing is flushed, closed or released in order."""
    os._exit(EXIT_STATUS)


def stop_process() -> None:
    """An action that stops the process, all its threads included, until it is sent SIGCONT."""
    # Sent to this very thread, which then does not run on until some other one takes notice.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


class Pause:
    """An action that lets a test look around while another thread stands still at a point."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._go_on = threading.Event()

    def __call__(self) -> None:
        self._reached.set()
        self._go_on.wait()

    def wait_until_reached(self, timeout: float = 30.0) -> None:
        """Return when a thread stands at the point."""
        if not self._reached.wait(timeout):
            raise errors.InternalError(f"no thread came to the point within {timeout:g} s")

    def resume(self) -> None:
        """Let it go on."""
        self._go_on.set()


def arm_from(environment: Mapping[str, str]) -> None:
    """Arm the points that the environment names; called once when this module is first used."""
    for entry in filter(None, (part.strip() for part in environment.get(SETTING, "").split(";"))):
        name, _, action = (part.strip() for part in entry.partition("="))
        _require_known(name)
        match action:
            case "exit":
                _armed[name] = end_process
            case "error":
                _armed[name] = error(name)
            case "stop":
                _armed[name] = stop_process
            case _:
                raise errors.BadRequest(
                    f"{SETTING} has an unknown action '{action}' for '{name}'",
                    remedy="use `exit`, `error` or `stop`",
                )


def _require_known(name: str) -> None:
    if name not in NAMES:
        raise errors.BadRequest(
            f"there is no failpoint '{name}'", remedy=f"choose one of: {', '.join(sorted(NAMES))}"
        )


arm_from(os.environ)
