"""The Airflow operator in a DAG that Airflow's own local runner executes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.real.conftest import Case

DAG = """\
import json, sys
from datetime import datetime
from airflow.sdk import DAG
from omnigraph.integrations.airflow import OmnigraphPipelineOperator

with DAG("people", start_date=datetime(2026, 1, 1), schedule=None) as dag:
    OmnigraphPipelineOperator(
        task_id="load", file="{{ params.file }}", actor="me", params={"file": FILE}, retries=2
    )

if __name__ == "__main__":
    run = dag.test()
    (task,) = run.get_task_instances()
    answer = {
        "run": str(run.state), "task": str(task.state), "tries": task.try_number,
        "xcom": task.xcom_pull(task_ids="load"),
    }
    open(ANSWER, "w").write(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of Airflow with its database."""
    folder = tmp_path_factory.mktemp("airflow")
    airflow(folder, "-m", "airflow", "db", "migrate")
    return folder


def airflow(home: Path, *arguments: str) -> str:
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "false",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout + done.stderr


def run_dag(home: Path, case: Case) -> tuple[Any, str]:
    dags = home / "dags"
    dags.mkdir(exist_ok=True)
    file, answer = dags / "people.py", case.folder / "answer.json"
    file.write_text(DAG.replace("FILE", repr(case.file)).replace("ANSWER", repr(str(answer))))
    log = airflow(home, str(file))
    return json.loads(answer.read_text()), log


def test_a_task_is_a_run_of_a_pipeline_with_its_commit_and_counts(home: Path, case: Case) -> None:
    answer, log = run_dag(home, case)
    assert (answer["run"], answer["task"]) == ("success", "success"), log
    assert case.ages() == {"ada@x": 36, "bo@x": 41}
    (target,) = answer["xcom"]["targets"].values()
    assert target == {
        "status": "succeeded",
        "commit": case.head(),
        "nodes": {"Person": 2},
        "edges": {},
        "rejected": 0,
    }


def test_a_task_whose_rows_are_rejected_fails_and_is_not_repeated(home: Path, case: Case) -> None:
    case.break_input()
    answer, log = run_dag(home, case)
    assert (answer["run"], answer["task"], answer["xcom"]) == ("failed", "failed", None), log
    assert answer["tries"] == 1
    assert "load_rejected" in log
    assert case.ages() == {}
