"""`engine="auto"`: this process while its needs are small, Spark beyond that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph.query import engine_choice
from omnigraph.query.engine_choice import SparkState, choose_by_size
from omnigraph.query.read_cache import shared_cache

KEPT, MEMORY = 1 << 30, 100 << 30


def found(state: SparkState) -> Callable[[], SparkState]:
    return lambda: state


def unasked() -> SparkState:
    raise AssertionError("Spark must not be looked for")


@pytest.mark.parametrize(
    ("need", "spark", "engine", "why"),
    [
        (KEPT, unasked, "local", "fit into memory"),
        (KEPT + 1, found(SparkState.MISSING), "local", "not installed"),
        (MEMORY, found(SparkState.MISSING), "local", "not installed"),
        (KEPT + 1, found(SparkState.COLD), "local", "until Spark answers"),
        (KEPT + 1, found(SparkState.WARM), "spark", "take 7 s here"),
        (2 * KEPT, found(SparkState.COLD), "spark", "take 14 s here"),
        (MEMORY // 2 + 1, found(SparkState.COLD), "spark", f"more than {MEMORY // 2}"),
    ],
)
def test_memory_decides_first_and_then_what_spark_costs(
    monkeypatch: pytest.MonkeyPatch,
    need: int,
    spark: Callable[[], SparkState],
    engine: str,
    why: str,
) -> None:
    monkeypatch.setattr(shared_cache(), "limit", KEPT)
    monkeypatch.setattr(engine_choice, "machine_memory", lambda: MEMORY)
    chosen = choose_by_size(need, spark)
    assert chosen.engine == engine
    assert why in chosen.why
