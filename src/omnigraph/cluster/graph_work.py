"""Operations that move a graph: create it, change its schema, delete it; each inside one recovery file."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import field

from msgspec.structs import replace

from omnigraph import failpoints
from omnigraph import graph as graphs
from omnigraph.cluster.addresses import graph_of, schema_address
from omnigraph.cluster.applied_policy import read_applied_policy
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import Findings, stopped
from omnigraph.cluster.live import Expected, describe
from omnigraph.cluster.plan import Change, Fence
from omnigraph.cluster.preview import schema_text
from omnigraph.cluster.root import ClusterRoot
from omnigraph.cluster.sidecars import VERSION, Operation, Sidecar, remove_sidecar, write_sidecar
from omnigraph.cluster.state import State
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.export_marks import list_exports
from omnigraph.errors import InternalError, OmnigraphError, StorageFailure
from omnigraph.graph import Graph


class Refused(Exception):
    """An operation that did not take place, with the code of the finding."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class GraphWork:
    """What operations on graphs need."""

    root: ClusterRoot
    desired: Desired
    state: State
    actor: str | None
    state_cas: str | None
    findings: Findings
    done: list[Sidecar] = field(default_factory=list)
    """The operations that took place; their files go after the state was written."""

    def create(self, graph_id: str, earlier: Sidecar | None) -> None:
        """Create a graph at its place, over what an `earlier` creation left that was interrupted."""
        address = schema_address(graph_id)
        digest = self.desired.resources[address].digest
        sidecar = self._begin(Operation.CREATE, graph_id, digest, earlier=earlier)
        reach(failpoints.CLUSTER_APPLY_BEFORE_GRAPH_CREATE)
        text = self._reread(address, sidecar if earlier is None else None)
        force = earlier is not None
        with graphs.init_at(self.root.graph_root(graph_id), text, force=force) as graph:
            version = graph.snapshot().version
        self._confirm(sidecar, version)
        reach(failpoints.CLUSTER_APPLY_AFTER_GRAPH_CREATE)

    def apply_schema(self, change: Change, fence: Fence | None, approval_id: str | None) -> None:
        """Change the schema of a graph; a matching approval lets it remove dropped data for good."""
        graph_id = str(graph_of(change.resource))
        text = self._reread(change.resource, None)
        with self._open(graph_id) as graph:
            before = describe(graph, Expected(change.before_digest, change.after_digest, text))
            if before.schema_digest == change.after_digest and approval_id is None:
                return  # an interrupted command got this far: opening the graph finished its write
            if before.schema_digest != change.after_digest:
                _require_fence(graph_id, fence, before.schema_digest)
            graph.plan_schema(text, allow_data_loss=approval_id is not None).refuse_unsupported()
            source = graph.schema_source
            sidecar = self._begin(
                Operation.SCHEMA,
                graph_id,
                str(change.after_digest),
                observed=before.manifest_version,
                approval_id=approval_id,
            )
            reach(failpoints.CLUSTER_APPLY_BEFORE_SCHEMA_APPLY)
            try:
                result = graph.apply_schema(text, allow_data_loss=approval_id is not None, actor=self.actor)
            except OmnigraphError:
                if _is_unmoved(graph, before.manifest_version, source):
                    remove_sidecar(self.root, sidecar.operation_id, self.findings)
                raise
        self._confirm(sidecar, result.manifest_version)
        reach(failpoints.CLUSTER_APPLY_AFTER_SCHEMA_APPLY)

    def delete(self, graph_id: str, approval_id: str | None) -> None:
        """Remove a graph with all its data, while no writer holds a branch of it and no export reads it."""
        with ExitStack() as stack:
            self._hold_branches(graph_id, stack)
            self._refuse_exports(graph_id)
            sidecar = self._begin(Operation.DELETE, graph_id, "", approval_id=approval_id)
            reach(failpoints.CLUSTER_APPLY_BEFORE_GRAPH_DELETE)
            self.root.objects.delete_prefix(self.root.graph(graph_id))
        self.done.append(sidecar)
        reach(failpoints.CLUSTER_APPLY_AFTER_GRAPH_DELETE)

    # --- recovery files --------------------------------------------------------------------------

    def _begin(
        self,
        kind: Operation,
        graph_id: str,
        digest: str,
        *,
        observed: int | None = None,
        approval_id: str | None = None,
        earlier: Sidecar | None = None,
    ) -> Sidecar:
        sidecar = Sidecar(
            VERSION,
            self.root.new_id() if earlier is None else earlier.operation_id,
            self.root.now(),
            self.actor,
            kind,
            graph_id,
            self.root.graph(graph_id).uri,
            observed,
            None,
            digest,
            self.state_cas,
            approval_id,
        )
        write_sidecar(self.root, sidecar)
        return sidecar

    def _confirm(self, sidecar: Sidecar, version: int) -> None:
        """Note the version that an operation made; only people look at it, so it may fail."""
        done = replace(sidecar, expected_manifest_version=version)
        try:
            write_sidecar(self.root, done)
        except StorageFailure as failure:
            message = f"operation '{sidecar.operation_id}' took place; its file does not say so: {failure}"
            self.findings.add("recovery_sidecar_cleanup_failed", sidecar.graph_uri, message)
        self.done.append(done)

    # --- graphs ----------------------------------------------------------------------------------

    def _reread(self, address: str, sidecar: Sidecar | None) -> str:
        """Return the text of a schema; a file that changed since it was read stops the operation."""
        file = self.desired.resources[address].file
        if file is None or file.read_again() is None:
            if sidecar is not None:
                remove_sidecar(self.root, sidecar.operation_id, self.findings)
            shown = address if file is None else file.shown
            raise Refused(
                "resource_content_changed", f"'{shown}' changed while the command ran; run it again"
            )
        return schema_text(self.desired, address)

    def _open(self, graph_id: str) -> Graph:
        """Open a graph for writing, under the policy that was applied and never under the desired one."""
        policy = read_applied_policy(self.root, self.state, graph_id)
        if policy is not None and self.actor is None:
            message = f"the applied policy of graph '{graph_id}' needs an actor: name one with --as"
            raise Refused("actor_required", message)
        return graphs.open_at(self.root.graph_root(graph_id), policy=policy, actor=self.actor)

    def _hold_branches(self, graph_id: str, stack: ExitStack) -> None:
        """Take the locks of all branches, so that no write is cut off; what is no graph has none."""
        root = self.root.graph_root(graph_id)
        try:
            with graphs.open_at(root, read_only=True) as graph:
                branches = list(graph.branches.list())
        except StorageFailure:
            raise
        except OmnigraphError:
            return  # a graph that does not open has no writers
        stack.enter_context(root.locks.hold(branches))

    def _refuse_exports(self, graph_id: str) -> None:
        for running in list_exports(self.root.graph_root(graph_id)):
            raise Refused(
                "graph_delete_export_in_progress",
                f"{running.owner} exports graph '{graph_id}'; apply again when that has ended",
            )


def reach(point: str) -> None:
    """Come to a failpoint; an error injected there ends the command as a crash would."""
    try:
        failpoints.reach(point)
    except InternalError as injected:
        raise stopped("injected_failpoint", point, injected.message) from injected


def _is_unmoved(graph: Graph, version: int, source: str) -> bool:
    """Whether a graph is provably as it was before a schema change that was refused."""
    try:
        return graph.snapshot().version == version and graph.schema_source == source
    except OmnigraphError:
        return False


def _require_fence(graph_id: str, fence: Fence | None, live: str) -> None:
    """Refuse a graph whose schema moved since the plan looked at it; its data may have moved."""
    if fence is not None and fence.schema_digest != live:
        message = (
            f"the schema of graph '{graph_id}' changed since the plan; run `cluster refresh` and plan again"
        )
        raise Refused("graph_schema_moved", message)
