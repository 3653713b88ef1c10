"""`omnigraph query` and `omnigraph explain`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph import graph
from omnigraph.cli.main import main
from tests import python_process

Run = Callable[..., str]
RunJson = Callable[..., Any]
Refused = Callable[..., tuple[str, str]]
ADULTS = """
query adults($least: I32) {
  match { $p: Person  $p.age >= $least }
  return { $p.handle as name, $p.age as age }
  order { name }
}
"""
EVERYONE = """
query everyone() {
  match { $p: Person }
  return { $p.handle as name, $p.age as age }
  order { name }
}
"""
ADD = "query add($h: String, $a: I32?) { insert Person { handle: $h, age: $a } }"


@pytest.fixture
def people(uri: str) -> str:
    """A graph with four people, of whom one has no age."""
    with graph.open(uri) as opened, opened.write() as tx:
        for handle, age in (("ada", 36), ("bo", 21), ("cy", None), ("日本", 7)):
            tx.insert("Person", handle=handle, age=age)
    return uri


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file with two queries."""
    path = tmp_path / "people.gq"
    path.write_text(ADULTS + EVERYONE, encoding="utf-8")
    return str(path)


def process(*arguments: str, **settings: Any) -> subprocess.CompletedProcess[bytes]:
    return python_process.run("-m", "omnigraph.cli.main", *arguments, text=False, **settings)


# --- which query, with which values --------------------------------------------------------------


def test_rows_are_a_table(people: str, run: Run) -> None:
    assert run("query", "-e", EVERYONE, "--uri", people).splitlines() == [
        "4 rows from branch main via everyone",
        "name |  age",
        "-----+-----",
        "ada  |   36",
        "bo   |   21",
        "cy   | null",
        "日本 |    7",
    ]


@pytest.mark.parametrize("named", [["adults"], ["--name", "adults"]])
def test_a_query_of_a_file_is_chosen_by_name(people: str, file: str, named: list[str], run: Run) -> None:
    output = run("query", *named, "--query", file, "--params", '{"least": 30}', "--store", people)
    assert output.splitlines()[0] == "1 row from branch main via adults"


def test_parameters_come_as_json_in_a_file_or_one_by_one(people: str, tmp_path: Path, run: Run) -> None:
    (tmp_path / "p.json").write_text('{"least": 30}', encoding="utf-8")
    for given in (
        ["--params", '{"least": 30}'],
        ["--params-file", str(tmp_path / "p.json")],
        ["-p", "least=30"],
        ["--params", '{"least": 1}', "--param", "least=30"],
    ):
        output = run("query", "-e", ADULTS, *given, "--uri", people, "--format", "csv")
        assert output == "name,age\nada,36\n"


@pytest.mark.parametrize(
    ("given", "name"),
    [("h=ada", "ada"), ('h="ada"', "ada"), ('h="5"', "5"), ("h=a=b", "a=b"), ("h=NaN", "NaN"), ("h=", "")],
)
def test_a_parameter_that_is_not_json_is_a_text(uri: str, given: str, name: str, run: Run) -> None:
    with graph.open(uri) as opened, opened.write() as tx:
        tx.insert("Person", handle=name or "-")
    find = "query q($h: String) { match { $p: Person { handle: $h } } return { $p.handle as h } }"
    rows = run("query", "-e", find, "-p", given, "--uri", uri, "--format", "ndjson").splitlines()[1:]
    assert [json.loads(row) for row in rows] == ([{"h": name}] if name else [])


# --- which moment --------------------------------------------------------------------------------


def test_a_branch_is_read(people: str, run: Run, run_json: RunJson) -> None:
    run("branch", "create", "--uri", people, "work")
    run("mutate", "-e", ADD, "--params", '{"h": "di"}', "--uri", people, "--branch", "work")
    assert run_json("query", "-e", EVERYONE, "--uri", people)["row_count"] == 4
    found = run_json("query", "-e", EVERYONE, "--uri", people, "--branch", "work")
    assert (found["row_count"], found["target"]) == (5, {"branch": "work", "snapshot": None})


def test_the_past_is_read_by_commit_version_and_time(people: str, run: Run, run_json: RunJson) -> None:
    before = run_json("commit", "list", people)["commits"][0]
    run("mutate", "-e", ADD, "--params", '{"h": "di"}', "--uri", people)
    lines = run("commit", "show", "--uri", people, before["graph_commit_id"]).splitlines()
    shown = dict(line.split(": ") for line in lines)["created_at"]
    for target in (
        ["--commit", before["graph_commit_id"]],
        ["--snapshot", before["graph_commit_id"]],
        ["--version", str(before["graph_manifest_version"])],
        ["--at", shown],
        ["--time", shown],
        ["--branch", "main", "--at", shown],
    ):
        found = run_json("query", "-e", EVERYONE, "--uri", people, *target)
        assert found["row_count"] == 4
        assert found["target"] == {"branch": None, "snapshot": before["graph_commit_id"]}
        assert found["graph_commit_id"] == before["graph_commit_id"]
    assert run_json("query", "-e", EVERYONE, "--uri", people)["row_count"] == 5


# --- formats -------------------------------------------------------------------------------------


def test_the_form_is_asked_for_or_the_one_the_operator_is_used_to(
    people: str, run: Run, configure: Callable[[str], None]
) -> None:
    configure("defaults: {output: csv, table_max_column_width: 8, table_cell_layout: wrap}")
    ask = ["query", "-e", ADULTS, "-p", "least=30", "--uri", people]
    assert run(*ask) == "name,age\nada,36\n"
    assert run(*ask, "--format", "kv").splitlines()[1:] == ["row 1", "name: ada", "age: 36"]
    assert json.loads(run(*ask, "--format", "kv", "--json"))["row_count"] == 1
    run("mutate", "-e", ADD, "--params", '{"h": "a long name", "a": 99}', "--uri", people)
    assert run(*ask, "--format", "table").splitlines()[3:] == [
        "a long n |  99",
        "ame      |",
        "ada      |  36",
    ]


def test_json_is_the_read_envelope(people: str, run: Run, run_json: RunJson) -> None:
    newest = run_json("commit", "list", people)["commits"][0]["graph_commit_id"]
    found = run_json("query", "-e", ADULTS, "-p", "least=20", "--uri", people)
    assert found == {
        "query_name": "adults",
        "target": {"branch": "main", "snapshot": None},
        "row_count": 2,
        "columns": ["name", "age"],
        "rows": [{"name": "ada", "age": 36}, {"name": "bo", "age": 21}],
        "graph_commit_id": newest,
    }
    same = run("query", "-e", ADULTS, "-p", "least=20", "--uri", people, "--format", "json")
    assert json.loads(same) == found


def test_json_beats_another_format(people: str, run: Run) -> None:
    assert json.loads(run("query", "-e", EVERYONE, "--uri", people, "--format", "csv", "--json"))["rows"]


def test_nothing_but_data_is_printed(people: str) -> None:
    done = process("query", "-e", EVERYONE, "--uri", people, "--format", "csv")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode("utf-8") == "name,age\nada,36\nbo,21\ncy,null\n日本,7\n"


@pytest.mark.parametrize("form", ["json", "table"])
def test_what_programs_read_is_utf8_whatever_the_terminal_has(people: str, form: str) -> None:
    settings = {"env": {**os.environ, "PYTHONIOENCODING": "ascii"}}
    done = process("query", "-e", EVERYONE, "--uri", people, "--format", form, **settings)
    assert (done.returncode, done.stderr) == (0, b"")
    wanted = rb"\u65e5\u672c" if form == "table" else "日本".encode()
    assert wanted in done.stdout


@pytest.mark.parametrize("form", ["table", "json", "ndjson", "csv", "kv", "arrow"])
def test_a_file_gets_what_standard_output_would(
    people: str, tmp_path: Path, form: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    query = ["query", "-e", EVERYONE, "--uri", people, "--format", form]
    assert main(query) == 0
    shown = capsysbinary.readouterr().out
    assert main([*query, "--output", str(tmp_path / "out")]) == 0
    assert capsysbinary.readouterr() == (b"", b"")
    assert (tmp_path / "out").read_bytes() == shown != b""


def test_arrow_comes_through_a_pipe(people: str) -> None:
    done = process("query", "-e", EVERYONE, "--uri", people, "--format", "arrow")
    table = pa.ipc.open_stream(done.stdout).read_all()
    assert table.to_pydict() == {"name": ["ada", "bo", "cy", "日本"], "age": [36, 21, None, 7]}


def test_arrow_is_not_for_a_terminal(people: str, capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["query", "-e", EVERYONE, "--uri", people, "--format", "arrow"]) == 1
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err == (
        "error[bad_request]: the arrow format is not for a terminal\n  help: name a file with --output\n"
    )


def test_a_reader_that_left_ends_the_command_without_noise(people: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        for form in ("table", "arrow"):
            done = process("query", "-e", EVERYONE, "--uri", people, "--format", form, stdout=write_end)
            assert (done.returncode, done.stderr) == (1, b"")
    finally:
        os.close(write_end)


# --- what is wrong -------------------------------------------------------------------------------


def test_what_is_wrong_is_reported(people: str, file: str, tmp_path: Path, refused: Refused) -> None:
    assert refused("query", "-e", EVERYONE) == ("bad_request", "no graph addressed")
    assert refused("query", "--uri", people) == ("bad_request", "no query given")
    both = refused("query", "-e", EVERYONE, "--query", file, "--uri", people)
    assert both == ("bad_request", "--query and --query-string are mutually exclusive")
    twice = refused("query", "adults", "--name", "adults", "--query", file, "--uri", people)
    assert twice == ("bad_request", "NAME and --name are mutually exclusive")
    assert refused("query", "--query", file, "--uri", people)[0] == "query_not_found"
    assert refused("query", "missing", "--query", file, "--uri", people)[0] == "query_not_found"
    assert refused("query", "-e", ADD, "-p", "h=x", "--uri", people)[0] == "wrong_query_kind"
    assert refused("query", "-e", "match", "--uri", people)[0] == "parse_error"
    assert "cannot read" in refused("query", "--query", str(tmp_path / "no.gq"), "--uri", people)[1]


def test_what_is_wrong_with_parameters_is_reported(people: str, tmp_path: Path, refused: Refused) -> None:
    assert refused("query", "-e", ADULTS, "--uri", people)[1] == "parameter 'least' not provided"
    for given, message in (
        (["-p", "least=old"], "param 'least': expected integer string, got 'old'"),
        (["-p", "least"], "'least' is not of the form NAME=VALUE"),
        (["-p", "=3"], "'=3' is not of the form NAME=VALUE"),
        (["--params", "{"], "params are not JSON"),
        (["--params", '{"least": NaN}'], "params are not JSON: NaN is not a value"),
        (["--params", "[" * 200_000], "params are not JSON"),
        (["--params", "[1]"], "params must be a JSON object"),
        (["--params-file", str(tmp_path / "no.json")], "cannot read"),
        (["--params", "{}", "--params-file", "x"], "mutually exclusive"),
    ):
        assert message in refused("query", "-e", ADULTS, *given, "--uri", people)[1]


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (["--branch", "nowhere"], "branch_not_found"),
        (["--commit", "nothing"], "commit_not_found"),
        (["--version", "99"], "version_not_found"),
        (["--at", "soon"], "commit_not_found"),
        (["--version", "1", "--at", "2030-01-01"], "bad_request"),
        (["--commit", "nothing", "--branch", "main"], "bad_request"),
    ],
)
@pytest.mark.parametrize("command", ["query", "explain"])
def test_a_moment_that_cannot_be_is_reported(
    people: str, refused: Refused, command: str, target: list[str], code: str
) -> None:
    assert refused(command, "-e", EVERYONE, "--uri", people, *target)[0] == code


def test_a_file_that_cannot_be_written_is_reported(people: str, tmp_path: Path, refused: Refused) -> None:
    at = tmp_path / "no" / "out.csv"
    refusal = refused("query", "-e", EVERYONE, "--uri", people, "--output", str(at))
    assert refusal == ("storage_failure", f"cannot write '{at}': No such file or directory")


def test_a_failing_query_leaves_the_file_alone(people: str, tmp_path: Path, refused: Refused) -> None:
    at = tmp_path / "out.csv"
    at.write_text("before", encoding="utf-8")
    refused("query", "-e", ADULTS, "--uri", people, "--output", str(at))
    assert at.read_text(encoding="utf-8") == "before"


def test_an_unknown_format_is_wrong_usage(people: str) -> None:
    assert main(["query", "-e", EVERYONE, "--uri", people, "--format", "xml"]) == 2


# --- explain -------------------------------------------------------------------------------------


def test_explain_prints_steps_with_rows_and_times(people: str, run: Run, run_json: RunJson) -> None:
    query = ("explain", "-e", ADULTS, "-p", "least=20", "--uri", people)
    found = run_json(*query)
    assert (found["query_name"], found["rows"]) == ("adults", 2)
    steps = found["steps"]
    assert all({"step", "detail", "rows", "milliseconds", "depth"} <= step.keys() for step in steps)
    assert 2 in [step["rows"] for step in steps]
    text = run(*query)
    assert all(step["step"] in text for step in steps)


def test_explain_refuses_what_query_refuses(people: str, refused: Refused) -> None:
    assert refused("explain", "-e", ADD, "-p", "h=x", "--uri", people)[0] == "wrong_query_kind"
    assert refused("explain", "--uri", people) == ("bad_request", "no query given")
