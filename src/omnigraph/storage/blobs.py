"""Columns of large bytes."""

from __future__ import annotations

import lance
import pyarrow as pa


def blob_field(name: str, *, nullable: bool) -> pa.Field:
    """A column whose bytes are kept beside the rows and read on demand."""
    return lance.blob_field(name, nullable=nullable)
