"""Which graph is meant when a command names none, one or several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]
Refused = Callable[..., tuple[str, str]]
Configure = Callable[[str], None]


def two_graphs(uri: str, configure: Configure) -> None:
    configure(
        f"""
servers: {{prod: {{url: https://graph.example.com}}}}
clusters: {{brain: {{root: /nowhere/brain}}}}
profiles:
  dev: {{store: {uri}}}
  file: {{store: "file://{uri}"}}
  near: {{store: ../g.omni}}
  away: {{store: ../away.omni}}
  staging: {{server: prod, default_graph: knowledge}}
  admin: {{cluster: brain}}
  both: {{server: prod, store: x}}
  none: {{}}
"""
    )


@pytest.mark.parametrize("name", ["dev", "file", "near"])
def test_a_profile_names_a_store(uri: str, name: str, configure: Configure, run: Run) -> None:
    two_graphs(uri, configure)
    assert run("branch", "list", "--profile", name) == "main\n"


def test_what_is_named_comes_before_profile_environment_and_defaults(
    uri: str, configure: Configure, run: Run, refused: Refused, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_graphs(uri, configure)
    text = (home / "config.yaml").read_text(encoding="utf-8")
    configure(f"{text}\ndefaults: {{store: {uri}}}")
    assert run("branch", "list") == "main\n"
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "away")
    assert refused("branch", "list")[1] == f"graph '{home.parent / 'away.omni'}' not found"
    assert run("branch", "list", "--profile", "dev") == "main\n"
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "")
    assert run("branch", "list") == "main\n"
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "unknown")
    assert run("branch", "list", "--uri", uri, "--profile", "away") == "main\n"
    assert run("version").startswith("omnigraph ")
    assert refused("branch", "list") == ("bad_request", "there is no profile 'unknown'")


def test_every_way_to_name_a_graph_excludes_the_others(uri: str, refused: Refused) -> None:
    ways = (["--uri", uri], ["--store", uri], ["--server", "prod"])
    for one, other in ((ways[0], ways[1]), (ways[0], ways[2]), (ways[1], ways[2])):
        message = refused("branch", "list", *other, *one)[1]
        assert message == f"{one[0]} and {other[0]} are mutually exclusive"
    assert refused("snapshot", uri, "--store", uri)[1] == "a URI and --store are mutually exclusive"


@pytest.mark.parametrize("given", [["--uri", "/g"], ["--store", "/g"], ["--profile", "dev"]])
def test_a_single_graph_takes_no_graph_flag(given: list[str], configure: Configure, refused: Refused) -> None:
    configure("profiles: {dev: {store: /g}}")
    assert refused("branch", "list", *given, "--graph", "x")[1].endswith("'/g' is already a single graph")


def test_an_empty_name_is_a_wrong_one_and_not_a_missing_one(
    uri: str, configure: Configure, refused: Refused
) -> None:
    configure(f"defaults: {{store: {uri}}}")
    assert refused("branch", "list", "--store", "")[0] == "invalid_name"
    assert refused("branch", "list", "--profile", "") == ("bad_request", "there is no profile ''")


def test_a_server_is_no_storage(refused: Refused) -> None:
    for given in (
        ["snapshot", "http://h/g"],
        ["branch", "list", "--uri", "https://h/g"],
        ["optimize", "HTTP://h"],
    ):
        code, message = refused(*given)
        assert (code, message) == (
            "bad_request",
            f"'{given[-1]}' is a server and must be addressed with --server",
        )


@pytest.mark.parametrize(
    ("command", "name", "message"),
    [
        ("optimize", "admin", "cluster '/nowhere/brain' cannot be used: cluster_config_missing: "),
        (
            "snapshot",
            "admin",
            "`snapshot` is a data command; profile 'admin' is bound to a cluster and does not",
        ),
        (
            "optimize",
            "staging",
            "`optimize` is a direct (storage-native) command; profile 'staging' is bound to",
        ),
        (
            "snapshot",
            "both",
            "profile 'both' must bind exactly one of server, cluster, store, and binds server and",
        ),
        (
            "snapshot",
            "none",
            "profile 'none' must bind exactly one of server, cluster, store, and binds none",
        ),
    ],
)
def test_a_profile_that_does_not_fit_says_why(
    uri: str, command: str, name: str, message: str, configure: Configure, refused: Refused
) -> None:
    two_graphs(uri, configure)
    assert refused(command, "--profile", name)[1].startswith(message)


def test_a_default_server_that_is_not_declared_is_named(configure: Configure, refused: Refused) -> None:
    configure("defaults: {server: prod, default_graph: knowledge}")
    assert refused("snapshot")[1] == "there is no server 'prod'"


def test_the_author_is_named_or_the_operator(uri: str, configure: Configure, run: Run) -> None:
    add = ["mutate", "-e", 'query q() { insert Person { handle: "ada" } }', "--uri", uri]
    drop = ["mutate", "-e", 'query q() { delete Person where handle = "ada" }', "--uri", uri]
    run(*add)
    configure("operator: {actor: act-andrew}")
    run(*drop)
    run(*add, "--as", "bo")
    actors = [line.partition(" actor=")[2] for line in run("commit", "list", uri).splitlines()]
    assert actors[:3] == ["bo", "act-andrew", ""]
