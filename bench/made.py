"""Data and databases that benchmarks make once and keep between runs, in the folder for temporary files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

KEPT = Path(tempfile.gettempdir()) / "omnigraph-bench"


def make_once(name: str, make: Callable[[Path], None]) -> Path:
    """What `make` puts at a path; made now if it was never made to its end."""
    place = KEPT / name
    if place.exists():
        return place
    # Under a name of this process: another one may be making the same.
    started = place.with_name(f"{place.name}.unfinished-{os.getpid()}")
    _remove(started)
    started.parent.mkdir(parents=True, exist_ok=True)
    make(started)
    try:
        started.rename(place)
    except OSError:
        if not place.exists():
            raise
        _remove(started)
    return place


def write_tables(folder: Path, tables: dict[str, pa.Table]) -> None:
    """One Parquet file for each table."""
    folder.mkdir()
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")


def write_lines(path: Path, parts: list[str | pa.Array | pa.ChunkedArray]) -> None:
    """One line for each row: fixed texts and the values of columns, one after the other."""
    columns = [part if isinstance(part, str) else pc.cast(part, pa.string()) for part in parts]
    lines = pc.binary_join_element_wise(*columns, "\n", "")
    with path.open("ab") as file:
        for chunk in lines.chunks if isinstance(lines, pa.ChunkedArray) else [lines]:
            # The values of a fresh array of texts lie one after the other.
            file.write(chunk.buffers()[2])


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
