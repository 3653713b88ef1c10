"""Answers of tasks as bytes: all that they hold arrives, and nothing else can."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.load.sources.item import Format
from omnigraph.engine.rows.violations import Violation
from omnigraph.errors import InternalError
from omnigraph.pipeline.answers import pack_answer, unpack_answer

TABLE = pa.table({"a": pa.chunked_array([[1], [None, 3]]), "b": ["x", "y", None]})


@pytest.mark.parametrize(
    "answer",
    [
        None,
        (1, 2.5, "x", b"y", True, frozenset({1}), {"a": [1, {2}]}),
        Counter(a=2),
        Violation("f", 1, None, "bad"),
        {Format.PARQUET: (Violation("f", 1, None, "bad"),)},
        TABLE,
        TABLE.schema.with_metadata({"a": "b"}),
        TABLE.column("a"),
        TABLE.slice(1, 2).to_batches()[0],
        pa.array(["a", None, "b"])[1:],
        pa.array([], pa.string()),
        pa.RecordBatch.from_pylist([], schema=TABLE.schema),
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_an_answer_arrives_as_it_was(answer: Any) -> None:
    found = unpack_answer(pack_answer(answer))
    assert type(found) is type(answer)
    assert found == answer


def test_numbers_arrive_with_their_types_and_can_be_changed() -> None:
    answer: dict[str, Any] = {
        "rows": np.arange(6, dtype="<u2").reshape(2, 3),
        "one": np.float32(1.5),
        "none": np.zeros(0, bool),
    }
    found = unpack_answer(pack_answer(answer))
    for name, value in answer.items():
        assert found[name].dtype == value.dtype
        assert np.array_equal(found[name], value)
    found["rows"][0, 0] = 7


@dataclass
class _Open:
    """Not frozen, and not of the package."""


class _Calls:
    def __init__(self, call: Any, *arguments: Any) -> None:
        self.reduced = call, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.reduced


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_answer_that_names_anything_else_is_refused(tmp_path: Path, protocol: int) -> None:
    evil = tmp_path / "evil"
    hostile = [
        _Calls(os.mkdir, str(evil)),
        _Calls(eval, f"__import__('os').mkdir({str(evil)!r})"),
        _Calls(getattr, "text", "upper"),
        _Open(),
        print,
    ]
    for one in hostile:
        with pytest.raises(InternalError, match="the answer of a task cannot be read"):
            unpack_answer(pickle.dumps(one, protocol))
    assert not evil.exists()


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"garbage",
        # A name with dots would be looked up part by part, and this one ends in a function.
        b"\x80\x04\x8c\x1aomnigraph.pipeline.answers\x8c\x09io.open\x93.",
        b"comnigraph.pipeline.answers\npickle\n.",
        b"comnigraph.storage.objects\nos\n.",
    ],
)
def test_bytes_that_are_no_answer_are_refused(packed: bytes) -> None:
    with pytest.raises(InternalError):
        unpack_answer(packed)
