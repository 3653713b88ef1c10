"""Lineage of loads and pipeline runs, sent to a listener over HTTP and into a file."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import LoadRejected
from omnigraph.integrations.pipeline_run import PipelineRun, run_pipeline
from tests.integrations.real.conftest import Case


class Listener(ThreadingHTTPServer):
    """Takes events, or answers each of them with an error."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.events: list[Any] = []
        self.status = 201


class Handler(BaseHTTPRequestHandler):
    server: Listener

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.events.append(json.loads(body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    with Listener() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "team")
        yield server
        server.shutdown()


def states(events: list[Any]) -> list[str]:
    return [event["eventType"] for event in events]


def load(case: Case, text: str) -> og.LoadResult:
    rows = case.folder / "rows.jsonl"
    rows.write_text(text)
    with og.open(case.graph) as graph:
        return graph.load(rows, mode="append", engine="local")


GOOD = '{"type":"Person","data":{"email":"cy@x","age":1}}\n'


def test_a_load_reports_its_inputs_commit_and_counts(case: Case, listener: Listener) -> None:
    done = load(case, GOOD)
    start, complete = listener.events
    assert states(listener.events) == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert start["job"] == complete["job"]
    assert (start["job"]["namespace"], start["job"]["name"]) == ("team", f"load.{case.graph}")
    assert [one["name"] for one in complete["inputs"]] == [str(case.folder / "rows.jsonl")]
    (output,) = complete["outputs"]
    assert (output["namespace"], output["name"]) == ("file", f"{case.graph}/node:Person")
    assert done.commit is not None
    assert output["facets"]["version"]["datasetVersion"] == done.commit.id
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 1


def test_a_load_that_is_rejected_reports_why(case: Case, listener: Listener) -> None:
    with pytest.raises(LoadRejected):
        load(case, '{"type":"Person","data":{"age":1}}\n')
    assert states(listener.events) == ["START", "FAIL"]
    failed = listener.events[1]
    assert "email" in failed["run"]["facets"]["errorMessage"]["message"]
    assert failed["outputs"] == []


def test_a_pipeline_run_is_one_run_with_its_own_id(case: Case, listener: Listener) -> None:
    from ulid import ULID

    record = run_pipeline(PipelineRun(case.file))
    assert states(listener.events) == ["START", "COMPLETE"]
    complete = listener.events[1]
    assert complete["run"]["runId"] == str(ULID.from_str(record.run_id).to_uuid())
    assert complete["job"]["name"] == "people"
    assert [one["name"] for one in complete["inputs"]] == [str(case.folder / "people.csv")]
    (output,) = complete["outputs"]
    assert output["facets"]["version"]["datasetVersion"] == case.head()
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 2

    case.break_input()
    run_pipeline(PipelineRun(case.file))
    assert states(listener.events[2:]) == ["START", "FAIL"]
    assert "load_rejected" in listener.events[3]["run"]["facets"]["errorMessage"]["message"]


def test_a_listener_that_fails_fails_no_load(
    case: Case, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    listener.status = 400
    with caplog.at_level(logging.WARNING, "omnigraph.lineage"):
        assert load(case, GOOD).total == 1
    assert states(listener.events) == ["START", "COMPLETE"]
    assert [record.message.partition(" was not sent")[0] for record in caplog.records] == [
        f"the lineage event {state} of load.{case.graph}" for state in ("START", "COMPLETE")
    ]
    assert case.ages() == {"cy@x": 1}


def test_a_file_in_the_working_folder_names_the_listener(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case.folder)
    log = Path("lineage.jsonl")
    Path("openlineage.yml").write_text(
        f"transport:\n  type: file\n  log_file_path: {log.absolute()}\n  append: true\n"
    )
    load(case, GOOD)
    assert states([json.loads(line) for line in log.read_text().splitlines()]) == ["START", "COMPLETE"]
