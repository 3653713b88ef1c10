"""A folder for many small files of one name, and the S3 server of the storage tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.conftest import s3_endpoint, s3_root

__all__ = ["s3_endpoint", "s3_root"]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a property: making one for each takes longer than the examples."""
    return tmp_path_factory.mktemp("scratch")
