"""`omnigraph init`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import graph
from omnigraph.cli.main import main

Run = Callable[..., str]
Refused = Callable[..., tuple[str, str]]


@pytest.fixture
def schema(tmp_path: Path) -> str:
    at = tmp_path / "s.pg"
    at.write_text("node Person { handle: String @key }\n", encoding="utf-8")
    return str(at)


def test_a_graph_is_made_and_named(tmp_path: Path, schema: str, run: Run) -> None:
    place = str(tmp_path / "g.omni")
    assert run("init", "--schema", schema, place) == f"initialized {place}\n"
    with graph.open(place) as opened:
        assert set(opened.schema.nodes) == {"Person"}


def test_json_tells_the_first_commit(tmp_path: Path, schema: str, run_json: Callable[..., Any]) -> None:
    place = str(tmp_path / "g.omni")
    found = run_json("init", place, "--schema", schema)
    with graph.open(place) as opened:
        first = opened.snapshot().id
    assert found == {"uri": place, "schema_path": schema, "graph_commit_id": first}


def test_a_graph_is_never_replaced(uri: str, schema: str, refused: Refused) -> None:
    for extra in ([], ["--force"]):
        assert refused("init", "--schema", schema, *extra, uri)[0] == "already_initialized"


def test_force_replaces_what_an_interrupted_init_left(
    tmp_path: Path, schema: str, run: Run, refused: Refused
) -> None:
    place = tmp_path / "g"
    place.mkdir()
    (place / "_schema.pg").write_text("node Old { k: String @key }", encoding="utf-8")
    assert refused("init", "--schema", schema, str(place))[0] == "already_initialized"
    assert run("init", "--schema", schema, "--force", str(place)) == f"initialized {place}\n"


def test_a_broken_schema_names_the_file_and_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.pg").write_text("node Person {\n  handle: Strin\n}", encoding="utf-8")
    assert main(["init", "--schema", str(tmp_path / "bad.pg"), str(tmp_path / "g")]) == 1
    assert "bad.pg:2:11" in capsys.readouterr().err
    assert not (tmp_path / "g").exists()


def test_a_missing_schema_file_and_a_strange_place_are_reported(
    tmp_path: Path, schema: str, refused: Refused
) -> None:
    assert refused("init", "--schema", str(tmp_path / "no.pg"), str(tmp_path / "g"))[0] == "bad_request"
    assert refused("init", "--schema", schema, "http://host/graph")[0] == "invalid_name"


@pytest.mark.parametrize(
    ("given", "missing"), [(["place"], "option '--schema'"), (["--schema", "s.pg"], "argument 'URI'")]
)
def test_place_and_schema_are_both_needed(
    given: list[str], missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", *given]) == 2
    assert f"Missing {missing}" in capsys.readouterr().err
