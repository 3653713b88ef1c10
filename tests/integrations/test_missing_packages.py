"""What integrations do where their packages are not installed, as in the environment of these tests."""

from __future__ import annotations

import logging
from importlib import import_module
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import MissingExtra

ROW = '{"type":"P","data":{"k":"a"}}\n'


@pytest.mark.parametrize("name", ["airflow", "dagster"])
def test_an_orchestrator_that_is_missing_is_named_with_its_extra(name: str) -> None:
    with pytest.raises(MissingExtra) as absent:
        import_module(f"omnigraph.integrations.{name}")
    assert absent.value.remedy == f"install it: pip install 'omnigraph[{name}]'"


@pytest.mark.parametrize(
    ("settings", "warnings"),
    [
        ({}, 0),
        ({"OPENLINEAGE_URL": "http://127.0.0.1:9"}, 1),
        ({"OPENLINEAGE_URL": "http://127.0.0.1:9", "OPENLINEAGE_DISABLED": "true"}, 0),
    ],
    ids=["not configured", "configured", "disabled"],
)
def test_lineage_without_its_package_is_a_warning_and_the_load_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, str],
    warnings: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "rows.jsonl").write_text(ROW)
    with (
        og.init(tmp_path / "g", schema="node P { k: String @key }") as graph,
        caplog.at_level(logging.WARNING, "omnigraph.lineage"),
    ):
        assert graph.load("rows.jsonl", mode="append", engine="local").total == 1
    assert [record.message.rpartition(": ")[2] for record in caplog.records] == [
        "pip install 'omnigraph[openlineage]'"
    ] * warnings
