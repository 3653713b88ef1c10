"""Former spellings of commands still work, and say what they are called now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.cli.main import main, rewrite_deprecated

Refused = Callable[..., tuple[str, str]]


@pytest.mark.parametrize(
    ("former", "present", "rest"),
    [
        ("query lint", "lint", "--query x"),
        ("query check", "lint", "--query x"),
        ("check", "lint", "--query x"),
        ("read", "query", "lint --query x"),
        ("change", "mutate", "-e x"),
    ],
)
def test_a_former_name_is_rewritten_with_a_word_about_it(
    former: str, present: str, rest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for before in ([], ["--quiet"], ["--store", "query"], ["--store=query"]):
        given = [*before, *former.split(), *rest.split()]
        assert rewrite_deprecated(given) == [*before, present, *rest.split()]
        warning = f"warning: `omnigraph {former}` is deprecated; use `omnigraph {present}`\n"
        assert capsys.readouterr().err == warning


@pytest.mark.parametrize("given", ["query x --query lint", "lint --query read", "--store read query", ""])
def test_present_names_stay_as_they_are(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert rewrite_deprecated(given.split()) == given.split()
    assert capsys.readouterr().err == ""


def test_an_ingest_is_a_load_that_merges(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "people.jsonl"
    data.write_text('{"type": "Person", "data": {"handle": "ada"}}\n', encoding="utf-8")
    for branch in ("main", "work", "work"):
        assert main(["ingest", uri, "--data", str(data), "--branch", branch]) == 0
        shown = capsys.readouterr()
        assert shown.out == (
            f"loaded {uri} on branch {branch} with merge: 1 entity across 1 node type and 0 edge types\n"
        )
        assert shown.err.startswith("warning: `omnigraph ingest` is deprecated; use `omnigraph load`\n")


def test_what_was_removed_names_its_successor(refused: Refused) -> None:
    assert refused("query", "--alias", "triage") == ("bad_request", "--alias was removed")
    for given in (["--config", "omnigraph.yaml"], ["--config=./omnigraph.yaml"]):
        assert refused("load", *given) == ("bad_request", "omnigraph.yaml is not read any more")
