"""Planning a schema change costs what its types cost, however many there are."""

from __future__ import annotations

import cProfile
import pstats
from pathlib import Path

import pytest

import omnigraph as og


def calls_to_plan(graph: og.Graph, types: int) -> int:
    """How many functions planning calls when a schema adds so many types."""
    text = "node P { k: String @key }\n"
    text += "\n".join(f"node T{types}x{number} {{ k: String @key }}" for number in range(types))
    profile = cProfile.Profile()
    profile.enable()
    graph.plan_schema(text)
    profile.disable()
    stats = pstats.Stats(profile)
    return int(stats.total_calls)  # type: ignore[attr-defined]


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "g.omni", schema="node P { k: String @key }")


def test_twice_the_types_cost_twice_the_calls(graph: og.Graph) -> None:
    graph.plan_schema("node P { k: String @key }\nnode Q { k: String @key }")  # imports what planning needs
    few, many = calls_to_plan(graph, 200), calls_to_plan(graph, 400)
    assert many < 2.2 * few
