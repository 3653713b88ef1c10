"""Two operators at once: one of them wins, the other learns why."""

from __future__ import annotations

import threading
from collections.abc import Callable

from omnigraph import failpoints
from tests.cluster.deployment import CONFIG, GONE, QUERY, WIDER, Deployment, Json, codes


def while_paused(point: str, first: Callable[[], Json], then: Callable[[], None]) -> Json:
    """Run a command in a thread, do something while it stands at a point, and let it go on."""
    pause, results = failpoints.Pause(), []
    with failpoints.arm(point, pause):
        thread = threading.Thread(target=lambda: results.append(first()))
        thread.start()
        pause.wait_until_reached()
        try:
            then()
        finally:
            pause.resume()
            thread.join()
    return results[0]


def test_everything_else_is_refused_while_one_applies(applied: Deployment) -> None:
    applied.write("knowledge.pg", WIDER)

    def rival() -> None:
        for run in (applied.plan, applied.apply, applied.refresh):
            assert codes(run(), "error") == ["state_lock_held"]
        assert codes(applied.approve("graph.knowledge"), "error") == ["state_lock_held"]
        assert "cluster_recovery_pending" in codes(applied.status()), "readers see how far it is"

    point = failpoints.CLUSTER_APPLY_BEFORE_SCHEMA_APPLY
    assert while_paused(point, applied.apply, rival)["converged"]


def test_two_applies_without_a_lock_record_one_result(applied: Deployment) -> None:
    applied.configure(CONFIG + "state: {lock: false}\n")
    applied.write("queries/more.gq", QUERY.replace("people", "more"))
    winners = []

    def rival() -> None:
        winners.append(applied.apply("bob"))

    point = failpoints.CLUSTER_APPLY_BEFORE_STATE_WRITE
    pause = failpoints.Pause()
    results = []
    with failpoints.arm(point, failpoints.once(pause)):
        thread = threading.Thread(target=lambda: results.append(applied.apply("ann")))
        thread.start()
        pause.wait_until_reached()
        rival()
        pause.resume()
        thread.join()
    assert winners[0]["converged"]
    assert codes(results[0], "error") == ["state_cas_mismatch"]
    assert applied.apply()["converged"]


def test_a_lock_taken_by_force_is_not_released_by_its_first_holder(applied: Deployment) -> None:
    applied.write("knowledge.pg", WIDER)
    taken = []

    def take_over() -> None:
        held = applied.status()["state_observations"]["lock_id"]
        assert applied.force_unlock(held)["lock_removed"]
        taken.append(applied.apply("bob"))

    pause, results = failpoints.Pause(), []
    with failpoints.arm(failpoints.CLUSTER_APPLY_BEFORE_STATE_WRITE, failpoints.once(pause)):
        thread = threading.Thread(target=lambda: results.append(applied.apply("ann")))
        thread.start()
        pause.wait_until_reached()
        take_over()
        pause.resume()
        thread.join()
    assert taken[0]["converged"]
    assert codes(results[0], "error") == ["state_cas_mismatch"]
    assert applied.sidecars() == []


def test_an_approval_loses_its_meaning_when_another_operator_applies_first(applied: Deployment) -> None:
    applied.configure(GONE)
    assert applied.approve("graph.knowledge")["ok"]
    applied.configure(CONFIG)
    applied.write("queries/more.gq", QUERY.replace("people", "more"))
    assert applied.apply("bob")["converged"]
    applied.configure(GONE)
    result = applied.apply("ann")
    assert "approval_stale" in codes(result, "warning")
    assert applied.graph().exists(), "the approved plan was about another content"
