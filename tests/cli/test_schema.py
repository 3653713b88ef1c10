"""`omnigraph schema show`, `plan` and `apply` on a graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from tests.cli.conftest import SCHEMA

WANTED = SCHEMA.replace("age: I32?", 'years: I64 @rename_from("age") @default(0)')


@pytest.fixture
def wanted(tmp_path: Path) -> Path:
    """A file with a schema that can be applied."""
    (tmp_path / "wanted.pg").write_text(WANTED, encoding="utf-8")
    return tmp_path / "wanted.pg"


@pytest.mark.parametrize("name", ["show", "get"])
def test_the_accepted_schema_is_printed_as_it_was_written(
    uri: str, run: Callable[..., str], run_json: Callable[..., Any], name: str
) -> None:
    assert run("schema", name, uri) == SCHEMA
    assert run_json("schema", name, "--store", uri) == {"uri": uri, "schema_source": SCHEMA}


def test_a_plan_for_a_graph_takes_the_schema_as_option_or_argument(
    uri: str, wanted: Path, run: Callable[..., str], run_json: Callable[..., Any]
) -> None:
    lines = [
        "~ Person.age renamed to years",
        "~ Person.years: I32 becomes I64",
        "~ Person.years is required, 0 where it is null",
        "3 steps; can be applied",
    ]
    for arguments in ([uri, "--schema", wanted], [uri, wanted], ["--store", uri, "-s", wanted]):
        assert run("schema", "plan", *map(str, arguments)).splitlines() == lines
    report = run_json("schema", "plan", uri, "--schema", str(wanted))
    assert (report["uri"], report["new"], report["supported"]) == (uri, str(wanted), True)
    assert (report["step_count"], [step["kind"] for step in report["steps"]]) == (
        3,
        ["rename_property", "widen_property", "require_property"],
    )
    with og.open(uri) as graph:
        assert graph.schema_source == SCHEMA


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["URI"], "no schema to compare with"),
        (["URI", "FILE", "--schema", "FILE"], "NEW.pg and --schema are mutually exclusive"),
        (["--schema", "FILE"], "no graph addressed"),
        (["URI", "--store", "URI", "--schema", "FILE"], "a URI and --store are mutually exclusive"),
    ],
)
def test_a_plan_needs_one_graph_and_one_schema(
    uri: str, wanted: Path, refused: Callable[..., tuple[str, str]], arguments: list[str], message: str
) -> None:
    places = {"URI": uri, "FILE": str(wanted)}
    given = [places.get(argument, argument) for argument in arguments]
    assert refused("schema", "plan", *given) == ("bad_request", message)


def test_apply_changes_the_graph_and_tells_its_commit(
    uri: str, wanted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schema", "apply", uri, "--schema", str(wanted), "--as", "ann"]) == 0
    shown = capsys.readouterr()
    with og.open(uri) as graph:
        newest = graph.commits.list()[0]
        assert graph.schema_source == WANTED
    assert newest.actor == "ann"
    assert shown.out.splitlines()[-1] == f"3 steps applied; commit {newest.id}"
    assert shown.err == f"omnigraph schema apply → {uri} (direct, local)\n"


def test_apply_twice_changes_nothing_the_second_time(
    uri: str, wanted: Path, run: Callable[..., str], run_json: Callable[..., Any]
) -> None:
    first = run_json("schema", "apply", uri, "--schema", str(wanted), "--quiet")
    assert (first["uri"], first["supported"], first["applied"], first["step_count"]) == (uri, True, True, 3)
    with og.open(uri) as graph:
        assert graph.snapshot().id == first["graph_commit_id"]
        assert graph.snapshot().version == first["graph_manifest_version"] == first["manifest_version"]
    second = run_json("schema", "apply", uri, "--schema", str(wanted), "--quiet")
    assert (second["applied"], second["steps"], second["graph_commit_id"]) == (False, [], None)
    assert second["manifest_version"] == first["manifest_version"]
    assert run("schema", "apply", uri, "--schema", str(wanted)) == "no changes\n"


def test_apply_with_data_loss_says_so_in_its_steps(
    uri: str, tmp_path: Path, run_json: Callable[..., Any]
) -> None:
    (tmp_path / "less.pg").write_text("node Person { handle: String @key }", encoding="utf-8")
    report = run_json("schema", "apply", uri, "-s", str(tmp_path / "less.pg"), "--allow-data-loss")
    assert [step["mode"] for step in report["steps"]] == ["hard", "hard"]


def test_data_that_does_not_fit_is_reported_row_by_row(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with og.open(uri) as graph:
        graph.mutate(
            'query q() { insert Person { handle: "ada", age: 200 } insert Person { handle: "bo", age: 200 } }'
        )
    strict = SCHEMA.replace("age: I32?", "age: I32? @unique  @range(age, 0..150)")
    (tmp_path / "strict.pg").write_text(strict, encoding="utf-8")
    arguments = ["schema", "apply", uri, "--schema", str(tmp_path / "strict.pg")]
    assert main(arguments) == 1
    assert capsys.readouterr().err.splitlines() == [
        "error[schema_data_violation]: the stored data does not fit the schema",
        "  node Person @range(age, 0..150): 2 violations",
        "    @range violation on Person.age: value 200 > max 150",
        "    @range violation on Person.age: value 200 > max 150",
        "  node Person @unique(age): 1 violations",
        "    @unique violation on Person.age: value '200' held by 'ada' and 'bo'",
        "  help: change or delete the reported rows, or relax the schema, then apply it again",
    ]
    assert main([*arguments, "--json"]) == 1
    report = json.loads(capsys.readouterr().err)
    assert report["error"] == (
        "the stored data does not fit the schema: 2 rows of node Person break @range(age, 0..150), "
        "@range violation on Person.age: value 200 > max 150; and 1 more constraint is broken"
    )
    assert [breach["count"] for breach in report["data"]["breaches"]] == [2, 1]


def test_an_impossible_change_is_refused_with_its_code(
    uri: str, tmp_path: Path, refused: Callable[..., tuple[str, str]]
) -> None:
    (tmp_path / "other.pg").write_text(SCHEMA.replace("age: I32?", "age: String?"), encoding="utf-8")
    code, message = refused("schema", "apply", uri, "--schema", str(tmp_path / "other.pg"))
    assert code == "unsupported_schema_change"
    assert message.startswith("[OG-MF-106] changing property type for 'Person.age'")
