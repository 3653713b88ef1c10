"""`omnigraph alias`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph import graph

Run = Callable[..., str]
Refused = Callable[..., tuple[str, str]]
Configure = Callable[[str], None]

QUERIES = """
query adults($least: I32, $name: String?) {
  match { $p: Person  $p.age >= $least }
  return { $p.handle as name, $p.age as age, $name as asked }
  order { name }
}
query add() { insert Person { handle: "eve" } }
"""
TEXT = """
aliases:
  adults: {{store: {uri}, file: q.gq, query: adults, args: [least, name], params: {{least: 30}},
    format: jsonl}}
  plain: {{store: {uri}, file: q.gq, query: adults, params: {{least: 30}}}}
  add: {{store: {uri}, file: q.gq, query: add}}
  remote: {{server: prod, graph: spike, query: weekly}}
  empty: {{store: {uri}}}
  homeless: {{file: q.gq, query: adults, params: {{least: 30}}, format: csv}}
"""


@pytest.fixture(autouse=True)
def aliases(uri: str, home: Path, configure: Configure) -> None:
    """A file of queries beside a config that names them."""
    configure(TEXT.format(uri=uri))
    (home / "q.gq").write_text(QUERIES, encoding="utf-8")
    with graph.open(uri) as opened, opened.write() as tx:
        for handle, age in (("ada", 36), ("bo", 21)):
            tx.insert("Person", handle=handle, age=age)


def parse_rows(text: str) -> list[tuple[str, str | None]]:
    return [(row["name"], row["asked"]) for row in map(json.loads, text.splitlines()[1:])]


def test_parameters_come_from_the_alias_its_args_and_params(run: Run) -> None:
    assert parse_rows(run("alias", "adults")) == [("ada", None)]
    assert parse_rows(run("alias", "adults", "20", "who")) == [("ada", "who"), ("bo", "who")]
    assert parse_rows(run("alias", "adults", "20", "who", "--params", '{"least": 35}')) == [("ada", "who")]


def test_the_form_is_asked_for_or_that_of_the_alias_or_of_the_operator(
    run: Run, home: Path, configure: Configure
) -> None:
    assert run("alias", "plain").splitlines()[1] == "name | age | asked"
    text = (home / "config.yaml").read_text(encoding="utf-8")
    configure(f"{text}\ndefaults: {{output: csv}}")
    assert run("alias", "plain") == "name,age,asked\nada,36,null\n"
    assert run("alias", "adults").startswith('{"kind":"metadata"')
    assert run("alias", "adults", "--format", "csv") == "name,age,asked\nada,36,null\n"
    assert json.loads(run("alias", "adults", "--format", "csv", "--json"))["row_count"] == 1


def test_an_alias_without_a_store_is_about_the_default_one(
    uri: str, run: Run, refused: Refused, home: Path, configure: Configure
) -> None:
    assert refused("alias", "homeless") == ("bad_request", "no graph addressed")
    text = (home / "config.yaml").read_text(encoding="utf-8")
    configure(f"{text}\ndefaults: {{store: {uri}}}")
    assert run("alias", "homeless") == "name,age,asked\nada,36,null\n"


def test_what_cannot_be_run_is_reported(refused: Refused) -> None:
    assert refused("alias", "missing")[1] == "there is no alias 'missing'"
    assert refused("alias", "adults", "1", "2", "3")[1] == (
        "alias 'adults' was given 3 arguments and takes 2 (least, name)"
    )
    assert refused("alias", "add", "1")[1] == "alias 'add' was given 1 arguments and takes none"
    assert refused("alias", "add")[0] == "wrong_query_kind"
    assert refused("alias", "remote")[1] == "there is no server 'prod'"
    assert refused("alias", "empty")[1] == "alias 'empty' names no file with queries"
