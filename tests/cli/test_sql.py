"""`omnigraph sql`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import graph

Run = Callable[..., str]
RunJson = Callable[..., Any]
Refused = Callable[..., tuple[str, str]]


@pytest.fixture
def people(uri: str) -> str:
    """A graph with two people."""
    with graph.open(uri) as opened, opened.write() as tx:
        for handle, age in (("ada", 36), ("bo", 21)):
            tx.insert("Person", handle=handle, age=age)
    return uri


def test_a_statement_prints_its_rows(run: Run, run_json: RunJson, people: str) -> None:
    statement = "select handle, age from Person order by age"
    assert run("sql", statement, "--store", people, "--format", "csv") == "handle,age\nbo,21\nada,36\n"
    assert run_json("sql", statement, "--uri", people)["rows"] == [
        {"handle": "bo", "age": 21},
        {"handle": "ada", "age": 36},
    ]


def test_a_file_and_parameters(run: Run, people: str, tmp_path: Path) -> None:
    file = tmp_path / "older.sql"
    file.write_text("select handle from Person where age > $least")
    printed = run("sql", "-q", str(file), "-p", "least=30", "--store", people, "--format", "csv")
    assert printed == "handle\nada\n"


def test_the_past_can_be_read(run: Run, people: str) -> None:
    arguments = ("sql", "select count(*) as n from Person", "--store", people, "--format", "csv")
    assert run(*arguments, "--version", "1") == "n\n0\n"
    assert run(*arguments) == "n\n2\n"


def test_mistakes_are_typed(refused: Refused, people: str) -> None:
    assert refused("sql", "selec 1", "--store", people)[0] == "sql_error"
    assert refused("sql", "drop view Person", "--store", people)[1] == "only SELECT is offered, not DROP"
    assert refused("sql", "--store", people)[1] == "no statement given"
    assert refused("sql", "select 1", "-q", "x.sql", "--store", people)[1].endswith("mutually exclusive")
    code, text = refused("sql", "select 1", "--server", "http://localhost:1")
    assert code == "bad_request"
    assert text.startswith("`sql` is a direct (storage-native) command; --server")
