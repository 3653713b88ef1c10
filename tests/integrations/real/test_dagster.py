"""The Dagster asset, materialized in a process of Dagster's own runner."""

from __future__ import annotations

import dagster
import pytest

from omnigraph.integrations.dagster import OmnigraphPipelines, pipeline_asset
from tests.integrations.real.conftest import Case


def materialize(case: Case) -> dagster.ExecuteInProcessResult:
    people = pipeline_asset(case.file, name="people")
    return dagster.materialize(
        [people], resources={"omnigraph": OmnigraphPipelines(actor="dagster")}, raise_on_error=False
    )


def test_an_asset_is_a_run_of_a_pipeline_with_its_commit_and_counts(case: Case) -> None:
    done = materialize(case)
    assert done.success
    assert case.ages() == {"ada@x": 36, "bo@x": 41}
    (event,) = done.asset_materializations_for_node("people")
    (target,) = event.metadata["targets"].value.values()
    assert target == {
        "status": "succeeded",
        "commit": case.head(),
        "nodes": {"Person": 2},
        "edges": {},
        "rejected": 0,
    }


def test_a_run_that_rejects_rows_fails_the_asset(case: Case) -> None:
    case.break_input()
    failed = materialize(case)
    assert not failed.success
    (event,) = failed.filter_events(lambda event: event.is_step_failure)
    failure = event.step_failure_data.user_failure_data
    assert failure is not None
    assert "load_rejected" in failure.description
    assert case.ages() == {}


@pytest.fixture(autouse=True)
def dagster_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path_factory.mktemp("dagster")))
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
