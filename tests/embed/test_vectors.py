"""Numbers are checked wherever they come from."""

from __future__ import annotations

import numpy as np
import pytest

from omnigraph.embed.settings import EmbedSettings
from omnigraph.embed.vectors import Vector, to_unit_vectors
from omnigraph.errors import EmbeddingAnswerRejected, EmbeddingDimensionMismatch

MAKER = EmbedSettings("http", "m")


def vectors(*rows: list[float]) -> list[Vector]:
    return to_unit_vectors(rows, texts=len(rows), dimension=2, maker=MAKER)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_refused(number: float) -> None:
    with pytest.raises(EmbeddingAnswerRejected, match="not finite"):
        vectors([1.0, 2.0], [number, 1.0])


def test_a_zero_vector_has_no_direction() -> None:
    with pytest.raises(EmbeddingAnswerRejected, match="no direction"):
        vectors([1.0, 2.0], [0.0, -0.0])


@pytest.mark.parametrize("row", [[], [1.0], [1.0, 2.0, 3.0]])
def test_one_row_of_another_dimension_is_enough_to_refuse_all(row: list[float]) -> None:
    with pytest.raises(EmbeddingDimensionMismatch, match=f"have {len(row)} dimensions instead of 2"):
        vectors([1.0, 2.0], row)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_too_few_and_too_many_vectors_are_refused(rows: int) -> None:
    with pytest.raises(EmbeddingAnswerRejected, match=f"{rows} vectors for 2 texts"):
        to_unit_vectors([[1.0, 2.0]] * rows, texts=2, dimension=2, maker=MAKER)


def test_the_smallest_and_largest_numbers_are_scaled_without_loss() -> None:
    tiny, huge = 5e-324, 1.7e308
    assert np.array_equal(vectors([tiny, 0.0], [0.0, huge]), [[1, 0], [0, 1]])
