"""Graphs to read, and a session for many small reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.conftest import PARTITIONS, spread
from tests.query.conftest import Shelf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    """The graphs of the cases, each made once."""
    made = Shelf(tmp_path_factory.mktemp("shelf"))
    yield made
    made.close()


@pytest.fixture(scope="package")
def frugal(spark: SparkSession) -> Iterator[SparkSession]:
    """A session for many tiny queries: compiling code for each takes longer than running them."""
    settings = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        **spread(PARTITIONS or "1"),
    }
    with configured(spark, settings):
        yield spark


@pytest.fixture
def many_partitions(frugal: SparkSession) -> Iterator[SparkSession]:
    """The same with more partitions than the cases have rows."""
    with configured(frugal, spread("16")):
        yield frugal


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session for a while."""
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, earlier in before.items():
        spark.conf.set(name, str(earlier))
