"""Vectors that Lance builds no index of: their distances overflow 32 bits."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from omnigraph.storage.tables import Table

LONGEST = 9.0e18
"""Up to this length the squared distance of two vectors is a finite number of 32 bits, whatever they are."""


def find_overlong_vector(
    table: Table, column: str, fragments: Collection[int] | None = None, *, most_bytes: int | None = None
) -> float | None:
    """Return the length of a vector of which no index can be built; None when there is no such vector.

    Only rows of these fragments count, and with `most_bytes` only the first so many bytes of vectors.
    """
    wanted = None if fragments is None else frozenset(fragments)
    pieces = [one for one in table.native.get_fragments() if wanted is None or int(one.fragment_id) in wanted]
    if not pieces:
        return None
    width, read = table.schema.field(column).type.list_size, 0
    with table.access.call("scan", table.uri):
        for batch in table.native.scanner(columns=[column], fragments=pieces).to_batches():
            values = batch.column(0).drop_null().flatten().to_numpy(zero_copy_only=False)
            vectors = values.reshape(-1, width).astype(np.float64)
            longest = float(np.sqrt(np.einsum("ij,ij->i", vectors, vectors).max(initial=0.0)))
            if longest > LONGEST:
                return longest
            read += values.nbytes
            if most_bytes is not None and read >= most_bytes:
                break
    return None
