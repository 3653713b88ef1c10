"""`omnigraph algorithm`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from omnigraph import graph
from omnigraph.cli.algorithm import app
from omnigraph.cli.main import main
from omnigraph.query.algorithms.calls import AlgorithmCalls

Run = Callable[..., str]
RunJson = Callable[..., Any]
Refused = Callable[..., tuple[str, str]]


@pytest.fixture
def filled(uri: str) -> str:
    """Ada knows Bo, Bo knows Cy; ages are free."""
    with graph.open(uri) as opened, opened.write() as tx:
        for name in ("ada", "bo", "cy"):
            tx.insert("Person", handle=name)
        tx.insert_edge("Knows", "ada", "bo")
        tx.insert_edge("Knows", "bo", "cy")
    return uri


def test_values_are_printed_in_any_form(filled: str, run: Run) -> None:
    shown = run("algorithm", "degree", filled, "--format", "csv", "--direction", "in", "--edge", "Knows")
    assert shown == "id,type,value\nada,Person,0\nbo,Person,1\ncy,Person,1\n"
    paths = json.loads(
        run("algorithm", "shortest-paths", filled, "--source", "bo", "--node", "Person", "--json")
    )
    assert [row["value"] for row in paths["rows"]] == [None, 0, 1]
    assert (paths["query_name"], paths["engine"], paths["converged"]) == ("shortest_paths", "local", True)


NAMES = [str(command.name) for command in app.registered_commands]


def test_every_algorithm_is_a_command() -> None:
    methods = {name for name in vars(AlgorithmCalls) if not name.startswith("_")}
    assert {name.replace("-", "_") for name in NAMES} == methods


@pytest.mark.parametrize("name", [name for name in NAMES if name != "shortest-paths"])
def test_every_algorithm_has_its_command(filled: str, run: Run, name: str) -> None:
    assert len(json.loads(run("algorithm", name, filled, "--json"))["rows"]) == 3


def test_options_may_come_before_the_name_of_the_algorithm(filled: str, run: Run) -> None:
    usual = run("algorithm", "degree", filled, "--format", "csv", "--direction", "in", "--distinct")
    assert run("algorithm", "--format", "csv", "--direction=in", "--distinct", "degree", filled) == usual
    assert run("algorithm", "--direction", "in", "degree", filled, "--distinct", "--format", "csv") == usual


def test_values_are_written_to_a_branch_and_reported(
    filled: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--write", "Person.age", "--onto", "ages", "--from", "main", "--as", "ann", "--format", "csv"]
    assert main(["algorithm", "connected-components", filled, *options]) == 0
    output = capsys.readouterr().err
    assert "wrote 3 values to Person.age on branch ages in commit " in output
    assert f"omnigraph algorithm → {filled} (direct, local)" in output
    with graph.open(filled, read_only=True) as opened:
        assert opened.snapshot("ages").rows("Person").column("age").to_pylist() == [0, 0, 0]
        assert opened.commits.list("ages")[0].actor == "ann"
        assert opened.snapshot().rows("Person").column("age").null_count == 3
    assert main(["algorithm", "connected-components", filled, *options, "--branch", "ages"]) == 0
    assert "nothing to write: Person.age on branch ages has these values already" in capsys.readouterr().err


def test_rows_are_filtered_by_type(filled: str, run: Run, refused: Refused) -> None:
    kept = run("algorithm", "degree", filled, "--where", 'Person: handle != "bo"', "--format", "csv")
    assert kept == "id,type,value\nada,Person,0\ncy,Person,0\n"
    two = ["--where", 'Person:handle > "ada"', "--where", 'Person: handle < "cy"']
    assert run("algorithm", "degree", filled, *two, "--format", "csv") == "id,type,value\nbo,Person,0\n"
    assert "is not TYPE:COMPARISON" in refused("algorithm", "degree", filled, "--where", "age > 3")[1]


def test_options_of_other_algorithms_are_refused(
    filled: str, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, option in (("degree", "--damping"), ("pagerank", "--source")):
        assert main(["algorithm", name, filled, option, "0.5"]) == 2
        assert f"No such option: {option}" in capsys.readouterr().err
    assert refused("algorithm", "shortest-paths", filled)[1] == "shortest paths need a node to begin at"
