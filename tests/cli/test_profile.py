"""`omnigraph profile`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., str]
RunJson = Callable[..., Any]
Refused = Callable[..., tuple[str, str]]

TEXT = """
servers: {prod: {url: https://graph.example.com}}
profiles:
  staging: {server: prod, default_graph: knowledge}
  dev: {store: s3://bucket/dev}
  odd: {server: prod, store: s3://bucket/dev}
defaults: {output: kv, store: s3://bucket/main}
"""
ODD = "profile 'odd' must bind exactly one of server, cluster, store, and binds server and store"


@pytest.fixture(autouse=True)
def three(configure: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Three profiles, of which one is in use."""
    configure(TEXT)
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "dev")


def test_profiles_are_listed(run: Run, run_json: RunJson) -> None:
    assert run("profile", "list").splitlines() == [
        "  staging server=prod default_graph=knowledge",
        "* dev store=s3://bucket/dev",
        f"  odd invalid: {ODD}",
    ]
    assert run_json("profile", "list") == [
        {
            "name": "staging",
            "binding": "server=prod",
            "scope_kind": "server",
            "target": "prod",
            "valid": True,
            "default_graph": "knowledge",
            "active": False,
        },
        {
            "name": "dev",
            "binding": "store=s3://bucket/dev",
            "scope_kind": "store",
            "target": "s3://bucket/dev",
            "valid": True,
            "active": True,
        },
        {
            "name": "odd",
            "binding": "server=prod, store=s3://bucket/dev",
            "scope_kind": "invalid",
            "valid": False,
            "error": ODD,
            "active": False,
        },
    ]


def test_a_profile_is_shown_by_its_name_or_as_the_one_in_use(
    run: Run, run_json: RunJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = {"name": "dev", "scope_kind": "store", "target": "s3://bucket/dev", "output_format": "kv"}
    assert run_json("profile", "show", "dev") == run_json("profile", "show") == dev
    assert run("profile", "show", "staging").splitlines() == [
        "name: staging",
        "scope_kind: server",
        "target: prod",
        "endpoint: https://graph.example.com",
        "default_graph: knowledge",
        "output_format: kv",
    ]
    monkeypatch.delenv("OMNIGRAPH_PROFILE")
    found = run_json("profile", "show")
    assert (found["name"], found["target"]) == ("(defaults)", "s3://bucket/main")


def test_looking_at_profiles_imports_nothing_heavy() -> None:
    program = (
        "import sys; from omnigraph.cli.main import main; main(['profile', 'list']); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert "ruamel.yaml" in imported
    assert imported & {"lance", "numpy", "obstore", "pyarrow", "pyspark", "rich"} == set()


def test_without_a_file_nothing_is_shown(home: Path, run: Run, refused: Refused) -> None:
    (home / "config.yaml").unlink()
    assert run("profile", "list") == f"no profiles in {home / 'config.yaml'}\n"
    assert refused("profile", "show") == ("bad_request", "there is no profile 'dev'")
