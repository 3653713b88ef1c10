"""Lance tables that others made: described and read at one version, never written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import lance
import pyarrow as pa
from lance import LanceDataset

from omnigraph.deferred_dataclass import dataclass
from omnigraph.storage.failures import wrap_lance_errors
from omnigraph.storage.location import Location


@dataclass(frozen=True, slots=True)
class InputFragment:
    """A part of a table that is read on its own."""

    number: int
    rows: int
    size: int
    """Bytes on disk, 0 where the table does not say."""


@dataclass(frozen=True, slots=True)
class InputTable:
    """A table at its newest version."""

    version: int
    schema: pa.Schema
    """The columns as they are read, Blobs as bytes."""
    pieces: tuple[InputFragment, ...]


def describe_table(uri: str) -> InputTable:
    """The newest version of a table."""
    with wrap_lance_errors("open", uri):
        dataset = _open_dataset(uri, None)
        schema = dataset.scanner(limit=0, blob_handling="all_binary").to_table().schema
        pieces = tuple(
            InputFragment(
                fragment.fragment_id,
                fragment.count_rows(),
                sum(file.file_size_bytes or 0 for file in fragment.data_files()),
            )
            for fragment in dataset.get_fragments()
        )
        return InputTable(int(dataset.version), schema, pieces)


def read_batches(
    uri: str, version: int, pieces: Sequence[int], columns: Sequence[str], size: int
) -> Iterator[pa.RecordBatch]:
    """The rows of some pieces in their order, `size` at a time."""
    with wrap_lance_errors("scan", uri):
        dataset, wanted = _open_dataset(uri, version), frozenset(pieces)
        reader = dataset.scanner(
            fragments=[fragment for fragment in dataset.get_fragments() if fragment.fragment_id in wanted],
            columns=list(columns),
            batch_size=size,
            scan_in_order=True,
            blob_handling="all_binary",
        ).to_reader()
    while True:
        try:
            with wrap_lance_errors("scan", uri):
                batch = reader.read_next_batch()
        except StopIteration:
            return
        yield batch


def _open_dataset(uri: str, version: int | None) -> LanceDataset:
    at = Location.parse(uri)
    return lance.dataset(at.uri, version=version, storage_options=at.storage_options() or None)
