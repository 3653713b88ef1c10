"""Deployments for tests; applying one takes longer than copying it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.deployment import Deployment, new_deployment
from tests.storage.conftest import s3_endpoint, s3_root

__all__ = ["s3_endpoint", "s3_root"]


@pytest.fixture
def fresh(tmp_path: Path) -> Deployment:
    """A configuration of which nothing was applied."""
    return new_deployment(tmp_path / "fresh")


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """An applied deployment that no test changes."""
    made = new_deployment(tmp_path_factory.mktemp("cluster") / "template")
    assert made.import_()["ok"]
    assert made.apply("ann")["converged"]
    return made


@pytest.fixture
def applied(template: Deployment, tmp_path: Path) -> Deployment:
    """A deployment whose files, ledger and graph agree."""
    return template.copy_to(tmp_path / "applied")
