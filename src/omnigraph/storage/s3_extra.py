"""Buckets need a package that folders do without."""

from __future__ import annotations

from importlib.util import find_spec

from omnigraph.errors import MissingExtra


def require_s3() -> None:
    """Say what to install when the package of the `s3` extra is missing, before it is imported."""
    if find_spec("obstore") is None:
        raise MissingExtra("a bucket", package="obstore", extra="s3")
