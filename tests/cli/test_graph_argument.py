"""A graph as the first argument, also of commands whose own arguments are something else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., str]
Refused = Callable[..., tuple[str, str]]

TEXT = "query all() { match { $p: Person } return { $p.handle } }"


@pytest.mark.parametrize(
    "words",
    [
        ("diff", "main", "main"),
        ("branch", "create", "draft"),
        ("sql", "select 1 as one"),
        ("query", "all", "-e", TEXT),
        ("query", "-e", TEXT),
    ],
    ids=" ".join,
)
def test_a_command_takes_the_graph_before_its_own_arguments(
    words: tuple[str, ...], uri: str, run: Run
) -> None:
    command = 2 if words[0] == "branch" else 1
    with_graph = (*words[:command], uri, *words[command:])
    if words[:2] == ("branch", "create"):
        assert run(*with_graph) == "created branch draft from main\n"
        return
    assert run(*with_graph) == run(*words, "--store", uri)


def test_the_name_of_a_query_is_no_graph(uri: str, refused: Refused) -> None:
    code, message = refused("query", "all", "-e", TEXT)
    assert (code, "no graph addressed" in message) == ("bad_request", True)


def test_a_graph_as_argument_and_as_option_is_refused(uri: str, refused: Refused) -> None:
    code, message = refused("diff", uri, "main", "main", "--store", uri)
    assert (code, message) == ("bad_request", "a URI and --store are mutually exclusive")


def test_the_environment_names_a_graph(uri: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_STORE", uri)
    assert run("branch", "list") == "main\n"
    monkeypatch.setenv("OMNIGRAPH_STORE", "")
    assert run("branch", "list", uri) == "main\n"
