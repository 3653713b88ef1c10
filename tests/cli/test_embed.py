"""`omnigraph embed`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import graph
from omnigraph.cli.main import main

SCHEMA = 'node Doc { slug: String @key  body: String?  about: Vector(4)? @embed(body, model="mock") }'


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., str]) -> str:
    """Where a graph with two texts is, and a provider without a network."""
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    with graph.init(tmp_path / "docs.omni", schema=SCHEMA) as made:
        made.mutate('query q() { insert Doc { slug: "a", body: "x" } insert Doc { slug: "b", body: "y" } }')
        return made.uri


def test_it_tells_people_what_it_did(docs: str, run: Callable[..., str]) -> None:
    assert run("embed", docs, "--dry-run") == "Doc.about: 2 due\n"
    first, second = run("embed", docs).splitlines()
    assert first == "Doc.about: 2 embedded"
    assert second.startswith("1 commit on branch 'main' in ")
    assert second.endswith(" s (local, model mock)")
    assert run("embed", docs) == "Doc.about: 0 due\nnothing was written on branch 'main'\n"


def test_it_tells_scripts_what_it_did(
    docs: str, run: Callable[..., str], run_json: Callable[..., Any]
) -> None:
    run("branch", "create", "work", "--uri", docs)
    report = run_json(
        "embed",
        docs,
        "--branch",
        "work",
        "--type",
        "Doc",
        "--batch",
        "1",
        "--engine",
        "local",
        "--all",
        "--as",
        "ivy",
    )
    assert {name: report[name] for name in ("branch", "model", "dry_run", "total_embedded")} == {
        "branch": "work",
        "model": "mock",
        "dry_run": False,
        "total_embedded": 2,
    }
    assert [commit["actor_id"] for commit in report["commits"]] == ["ivy", "ivy"]
    assert report["engine"]["name"] == "local"
    (about,) = report["properties"]
    assert about == {
        "type": "Doc",
        "property": "about",
        "due": 2,
        "embedded": 2,
        "cleared": 0,
        "changed_meanwhile": 0,
        "refused": 0,
        "refusals": [],
    }
    with graph.open(docs) as opened:
        assert opened.snapshot().rows("Doc").column("about").null_count == 2


def test_texts_that_are_left_out_are_named(
    docs: str, run: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    with graph.open(docs) as opened, opened.write() as changes:
        for number in range(22):
            changes.insert("Doc", slug=f"long{number}", body="x" * (256 * 1024 + 1))
    assert main(["embed", docs]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Doc.about: 2 embedded, 22 refused\n")
    assert shown.err.count("was left out: text for model 'mock' has 262145 bytes") == 20
    assert "and 2 more of Doc.about" in shown.err


def test_without_a_provider_it_is_an_error(
    docs: str, refused: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMNIGRAPH_EMBED_PROVIDER")
    assert refused("embed", docs)[0] == "embedding_not_configured"
