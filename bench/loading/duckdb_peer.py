"""DuckDB: read NDJSON without checking it, and write Parquet."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path

import duckdb

VERSION = duckdb.__version__
_COLUMNS = (
    "{type: 'VARCHAR', edge: 'VARCHAR', \"from\": 'VARCHAR', \"to\": 'VARCHAR', "
    "data: 'STRUCT(number BIGINT, name VARCHAR, age BIGINT, score DOUBLE, active BOOLEAN)'}"
)


class Engine:
    """Writes files, one for each load."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._numbers = count()

    def load(self, records: Path) -> tuple[float, int]:
        """All lines into one wide file; the seconds, and how many rows there are."""
        at = self._place / f"rows-{next(self._numbers)}.parquet"
        begun = time.perf_counter()
        with duckdb.connect() as connection:
            connection.execute(
                f"COPY (SELECT * FROM read_json('{records}', format = 'newline_delimited', "
                f"columns = {_COLUMNS})) TO '{at}' (FORMAT parquet)"
            )
            took = time.perf_counter() - begun
            rows = connection.execute(f"SELECT count(*) FROM '{at}'").fetchone()
        assert rows is not None
        return took, rows[0]
