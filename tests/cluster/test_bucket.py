"""A cluster in a bucket: lock, compare-and-swap and deletes work as in a folder."""

from __future__ import annotations

import pytest

from omnigraph import failpoints
from omnigraph.cluster.diagnostics import Findings, Stopped
from omnigraph.cluster.ledger import LedgerVersion, read_ledger, write_ledger
from omnigraph.cluster.lock import hold_lock, read_lock
from omnigraph.cluster.root import ClusterRoot
from omnigraph.cluster.state import State
from omnigraph.storage.location import Location
from tests.cluster.deployment import CONFIG, GONE, Deployment, codes, outcomes

pytestmark = pytest.mark.s3


def test_one_of_two_commands_gets_the_lock(s3_root: Location) -> None:
    root, findings = ClusterRoot.at(s3_root), Findings()
    with hold_lock(root, "apply", findings) as held:
        with pytest.raises(Stopped) as stopped, hold_lock(root, "plan", findings):
            pytest.fail("two commands hold the lock")
        assert stopped.value.found.code == "state_lock_held"
        assert read_lock(root) == held
    assert read_lock(root) is None


def test_one_of_two_state_writes_is_recorded(s3_root: Location) -> None:
    root, findings = ClusterRoot.at(s3_root), Findings()
    first = write_ledger(root, State(revision=1), LedgerVersion(None), findings)
    with pytest.raises(Stopped) as stopped:
        write_ledger(root, State(revision=1, config_digest="x"), LedgerVersion(None), findings)
    assert stopped.value.found.code == "state_cas_mismatch"
    second = write_ledger(root, State(revision=2), first, findings)
    with pytest.raises(Stopped):
        write_ledger(root, State(revision=2, config_digest="x"), first, findings)
    assert read_ledger(root, findings) == second


def test_a_deployment_in_a_bucket_is_applied_and_deleted(fresh: Deployment, s3_root: Location) -> None:
    storage = f"storage: {s3_root.uri}\n"
    fresh.configure(CONFIG + storage)
    assert fresh.import_()["ok"]
    assert fresh.apply("ann")["converged"]
    assert not (fresh.folder / "graphs").exists(), "nothing is stored beside the files"
    root = ClusterRoot.at(s3_root)
    assert root.objects.exists(root.graph("knowledge"))
    fresh.configure(GONE + storage)
    assert fresh.approve("graph.knowledge")["ok"]
    point = failpoints.CLUSTER_APPLY_AFTER_GRAPH_DELETE
    with failpoints.arm(point, failpoints.error(point)):
        assert codes(fresh.apply("ann"), "error") == ["injected_failpoint"]
    assert not root.objects.exists(root.graph("knowledge"))
    result = fresh.apply("ann")
    assert "cluster_recovery_rolled_forward" in codes(result)
    assert result["converged"]
    assert outcomes(result) == {
        "policy.server": "delete applied",
        "provider.embedding.local": "delete applied",
    }
    assert fresh.status()["state_observations"]["state_path"].startswith("s3://")
