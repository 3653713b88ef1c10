"""`omnigraph snapshot`, and `omnigraph version`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import __version__
from omnigraph.cli.main import main

Run = Callable[..., str]
Refused = Callable[..., tuple[str, str]]


def test_every_type_is_shown_with_version_and_size(uri: str, run: Run) -> None:
    commit_id = run("commit", "list", uri).split()[0]
    assert run("snapshot", uri).splitlines() == [
        "graph_branch: main",
        "graph_manifest_version: 2",
        f"graph_commit_id: {commit_id}",
        "edge:Knows version=1 branch=main rows=0",
        "node:Person version=1 branch=main rows=0",
    ]


def test_json_has_every_table_under_its_old_and_new_names(
    uri: str, run: Run, run_json: Callable[..., Any]
) -> None:
    found = run_json("snapshot", "--store", uri)
    commit_id = run("commit", "list", uri).split()[0]
    paths = [table["table_path"] for table in found["tables"]]
    assert all((Path(uri) / path).is_dir() for path in paths)
    assert found == {
        "graph_branch": "main",
        "branch": "main",
        "graph_manifest_version": 2,
        "manifest_version": 2,
        "graph_commit_id": commit_id,
        "internal_schema_version": 4,
        "datasets": [
            {
                "entity_kind": kind,
                "type_name": name,
                "dataset_path": path,
                "published_dataset_version": 1,
                "native_dataset_branch": None,
                "entity_count": 0,
            }
            for kind, name, path in zip(("edge", "node"), ("Knows", "Person"), paths, strict=True)
        ],
        "tables": [
            {"table_key": key, "table_path": path, "table_version": 1, "table_branch": None, "row_count": 0}
            for key, path in zip(("edge:Knows", "node:Person"), paths, strict=True)
        ],
    }


def test_the_past_is_asked_for_by_commit_version_and_time(
    uri: str, commit: Callable[..., str], run: Run, run_json: Callable[..., Any]
) -> None:
    run("branch", "create", "--uri", uri, "work")
    wanted = run_json("commit", "show", "--uri", uri, commit("work"))
    commit("work")
    version = str(wanted["graph_manifest_version"])
    targets = [
        ["--commit", wanted["graph_commit_id"]],
        ["--branch", "work", "--version", version],
        [
            "--branch",
            "work",
            "--time",
            run("commit", "show", "--uri", uri, wanted["graph_commit_id"]).split()[-1],
        ],
    ]
    for target in targets:
        found = run_json("snapshot", uri, *target)
        assert (found["graph_branch"], found["graph_commit_id"]) == ("work", wanted["graph_commit_id"])
    assert run_json("snapshot", uri, "--branch", "work")["graph_commit_id"] != wanted["graph_commit_id"]


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (["--branch", "nowhere"], "branch_not_found"),
        (["--commit", "nothing"], "commit_not_found"),
        (["--version", "99"], "version_not_found"),
        (["--version", "0"], "version_not_found"),
        (["--time", "soon"], "invalid_value"),
        (["--time", "1999-01-01"], "version_not_found"),
        (["--version", "1", "--time", "2030-01-01"], "bad_request"),
        (["--commit", "nothing", "--version", "1"], "bad_request"),
        (["--commit", "nothing", "--branch", "main"], "bad_request"),
    ],
)
def test_a_target_that_cannot_be_is_reported(
    uri: str, refused: Refused, target: list[str], code: str
) -> None:
    assert refused("snapshot", uri, *target)[0] == code


def test_a_graph_must_be_named_once(uri: str, refused: Refused) -> None:
    assert refused("snapshot") == ("bad_request", "no graph addressed")
    both = refused("snapshot", uri, "--store", uri)
    assert both == ("bad_request", "a URI and --store are mutually exclusive")


def test_looking_changes_nothing(uri: str, run: Run) -> None:
    def files() -> dict[Path, bytes]:
        return {at: at.read_bytes() for at in Path(uri).rglob("*") if at.is_file()}

    before = files()
    run("snapshot", uri)
    run("commit", "list", uri)
    run("branch", "list", "--uri", uri)
    assert files() == before


def test_version_names_the_program_and_the_stored_form(run: Run, run_json: Callable[..., Any]) -> None:
    assert run("version") == f"omnigraph {__version__}\ninternal-schema 4\n"
    assert run_json("version") == {"version": __version__, "internal_schema_version": 4}


# --- commands that take a graph in place of a schema file ----------------------------------------


def test_lint_checks_against_a_graph(
    uri: str, tmp_path: Path, run: Run, run_json: Callable[..., Any], refused: Refused
) -> None:
    at = tmp_path / "q.gq"
    at.write_text("query q() { match { $p: Person } return { $p.age } }\n", encoding="utf-8")
    assert run("lint", uri, "--query", str(at)).startswith("ok    read q\n")
    assert run_json("lint", "--store", uri, "--query", str(at))["schema_source"] == {
        "kind": "graph",
        "uri": uri,
    }
    assert refused("lint", "--query", str(at)) == ("bad_request", "no graph addressed")
    both = refused("lint", uri, "--schema", "s.pg", "--query", str(at))
    assert both == ("bad_request", "a URI and --schema are mutually exclusive")
    at.write_text("query q() { match { $p: Robot } return { $p } }\n", encoding="utf-8")
    assert main(["lint", uri, "--query", str(at)]) == 1


def test_a_plan_starts_from_a_graph(
    uri: str, tmp_path: Path, run: Run, run_json: Callable[..., Any], refused: Refused
) -> None:
    at = tmp_path / "next.pg"
    at.write_text(
        "node Person { handle: String @key  age: I32?  email: String? }\nedge Knows: Person -> Person"
    )
    assert run("schema", "plan", uri, str(at)).splitlines() == [
        "+ Person.email: String?",
        "1 step; can be applied",
    ]
    found = run_json("schema", "plan", f"file://{uri}", str(at))
    assert (found["uri"], found["supported"], found["step_count"]) == (uri, True, 1)
    assert refused("schema", "plan", str(tmp_path), str(at))[0] == "graph_not_found"
