"""The config file of the operator."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from omnigraph.cli.config import Alias, Config, Defaults, Profile
from omnigraph.cli.config_file import config_path, read_config
from omnigraph.cli.main import main

Refused = Callable[..., tuple[str, str]]
Configure = Callable[[str], None]


def test_no_file_and_an_empty_one_say_nothing(home: Path, configure: Configure) -> None:
    path = home / "config.yaml"
    assert read_config(path) == Config(path)
    configure("# nothing yet\n")
    assert read_config(path) == Config(path)


def test_the_folder_is_set_or_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OMNIGRAPH_HOME", "~/settings")
    assert config_path() == tmp_path / "settings" / "config.yaml"
    monkeypatch.setenv("OMNIGRAPH_HOME", "")
    assert config_path() == tmp_path / ".omnigraph" / "config.yaml"


def test_everything_is_read(home: Path, configure: Configure) -> None:
    configure(
        """
operator: {actor: act-andrew}
servers: {prod: {url: https://graph.example.com}}
clusters: {brain: {root: s3://acme/clusters/brain}}
profiles:
  staging: {server: staging, default_graph: knowledge}
defaults: {output: kv, table_max_column_width: 20, table_cell_layout: wrap, store: g.omni}
aliases:
  triage: {server: prod, graph: spike, query: weekly, args: [since],
    params: {limit: 20, day: 2024-01-31}, format: csv}
  here: {file: q.gq, store: s3://b/g, branch: work}
"""
    )
    found = read_config(home / "config.yaml")
    assert (found.actor, found.servers, found.clusters) == (
        "act-andrew",
        {"prod": "https://graph.example.com"},
        {"brain": "s3://acme/clusters/brain"},
    )
    assert found.profiles["staging"].bindings == {"server": "staging"}
    assert found.profiles["staging"].default_graph == "knowledge"
    assert found.defaults == Defaults("kv", 20, "wrap", store=str(home / "g.omni"))
    triage, here = found.aliases["triage"], found.aliases["here"]
    assert (triage.server, triage.graph, triage.query, triage.args) == ("prod", "spike", "weekly", ("since",))
    assert (triage.params, triage.format) == ({"limit": 20, "day": "2024-01-31"}, "csv")
    assert (here.file, here.store, here.branch) == (home / "q.gq", "s3://b/g", "work")


def test_the_documented_file_is_right_and_has_every_key(
    home: Path, configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    configure(example)
    found = read_config(home / "config.yaml")
    assert capsys.readouterr().err == ""
    assert found.actor == "ann"
    for kind in (Config, Defaults, Profile, Alias):
        keys = {one.name for one in fields(kind)} - {"path", "name"}
        assert {key for key in keys if key not in page} == set()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("operator: [", ":1:12: "),
        ("- a", ":1: the file must have members"),
        ("operator: ann", ":1: operator must have members"),
        ("operator:\n  actor: 5", ":2: operator.actor must be a text"),
        ("operator: {}\noperator: {}", ":2:1: 'operator' appears twice"),
        ("servers: {prod: {}}", ":1: servers.prod.url is missing"),
        ("defaults: {output: xml}", ":1: defaults.output must be one of table, kv, csv, jsonl, json"),
        (
            "defaults: {table_max_column_width: 0}",
            ":1: defaults.table_max_column_width must be a number from 1",
        ),
        (
            "defaults: {table_cell_layout: cut}",
            ":1: defaults.table_cell_layout must be one of truncate, wrap",
        ),
        ("defaults: {server: a, store: b}", ":1: defaults.server and defaults.store are mutually exclusive"),
        (
            "defaults: {default_graph: a, store: b}",
            ":1: defaults.default_graph and defaults.store are mutually",
        ),
        ("aliases: {a: {args: x}}", ":1: aliases.a.args must be a list of parameter names"),
        ("aliases: {a: {format: arrow}}", ":1: aliases.a.format must be one of"),
    ],
)
def test_a_wrong_value_is_reported_with_its_line(
    text: str, problem: str, home: Path, configure: Configure, refused: Refused
) -> None:
    configure(text)
    code, message = refused("profile", "list")
    # What has a column is wrong with the YAML itself.
    assert code == ("yaml_invalid" if problem.split(":")[2].isdigit() else "bad_request")
    assert message.startswith(f"{home / 'config.yaml'}{problem}")


def test_a_file_that_cannot_be_read_is_an_error(home: Path, refused: Refused) -> None:
    (home / "config.yaml").mkdir(parents=True)
    assert refused("profile", "list")[1] == f"cannot read '{home / 'config.yaml'}': Is a directory"


def test_unknown_keys_are_warned_about_and_ignored(
    home: Path, configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    configure("colour: red\nprofiles:\n  dev:\n    store: g\n    shade: dark\n")
    assert main(["profile", "list"]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"  dev store={home / 'g'}\n"
    assert shown.err == (
        f"warning: {home / 'config.yaml'}:1: unknown key 'colour' in the file is ignored\n"
        f"warning: {home / 'config.yaml'}:5: unknown key 'shade' in profiles.dev is ignored\n"
    )
