"""Rows that a format of Spark reads, as the input of a load."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import BadRequest
from omnigraph.lang.values import shorten_legibly

TABLE = "table:"
"""Before the name of a table of Spark's catalog, as a format."""

_FORMAT = re.compile(r"[A-Za-z][\w.-]*")
_TABLE = re.compile(re.escape(TABLE) + r"\S.*")


def is_format(name: str) -> bool:
    """Whether a text can name a format of Spark, or a table of its catalog."""
    return (_FORMAT.fullmatch(name) or _TABLE.fullmatch(name)) is not None


@dataclass(frozen=True, slots=True)
class SparkSource:
    """Rows of one type that Spark reads.

    graph.load(SparkSource("orc", "people.orc"), type="Person", mode="append")
    """

    format: str
    """As Spark knows it, such as `orc`, `xml`, `jdbc` or `delta`; or `table:` and the name of a table."""
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = ()
    """Files or folders, if the format reads any."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's reader; `${NAME}` in a value is taken from the environment."""

    def __post_init__(self) -> None:
        if not is_format(self.format):
            raise BadRequest(
                f"'{shorten_legibly(self.format)}' cannot be a format of Spark",
                remedy=f"name one that Spark has, such as orc, xml or jdbc, or `{TABLE}NAME`",
            )
        if self.table is not None and self.paths:
            raise BadRequest(
                f"'{shorten_legibly(self.format)}' is a table of Spark's catalog, and has no path",
                remedy="leave the path out",
            )

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path, as a text."""
        single = isinstance(self.path, str | os.PathLike)
        return tuple(map(os.fspath, (self.path,) if single else self.path))  # type: ignore[arg-type]

    @property
    def table(self) -> str | None:
        """The name of the table in Spark's catalog, if it is one."""
        return self.format.removeprefix(TABLE) if self.format.startswith(TABLE) else None
