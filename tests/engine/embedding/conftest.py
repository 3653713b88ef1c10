"""A graph with texts to be embedded by a provider that needs no network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.graph import Graph

SCHEMA = """
node Doc {
  slug: String @key
  body: String?
  level: I32?
  file: Blob?
  about: Vector(8)? @embed(body, model="mock")
}
node Note { slug: String @key  text: String?  place: Vector(4) @embed(text) }
node Plain { slug: String @key }
"""


@pytest.fixture(autouse=True)
def provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text has a vector, always the same one."""
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """A graph without rows."""
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as made:
        yield made
