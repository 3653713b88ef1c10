"""Filling `@embed` properties: find the rows, have tasks ask the provider, land a commit for each part.

A run that was killed is simply run again. What landed is there and noted, the rest is found again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.embed.settings import PROVIDER_SETTING, PROVIDERS, EmbedSettings
from omnigraph.engine.commit.plan import UpsertRows
from omnigraph.engine.embedding.embed_job import (
    EmbedJob,
    NewVectors,
    combine_chunks,
    make_vectors,
    read_state,
)
from omnigraph.engine.embedding.provenance import VectorNotes, merge_files, store_notes
from omnigraph.engine.embedding.result import (
    MAX_REPORTED_REFUSALS,
    ROWS_PER_COMMIT,
    EmbedOptions,
    EmbedResult,
    FilledProperty,
)
from omnigraph.engine.embedding.stale_rows import StaleRows, find_stale_rows, group_fragments
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.tasks.runner import ChooseEngine, Engine, LocalRunner, Runner, select_engine
from omnigraph.engine.upkeep.declared_indexes import PendingIndexes
from omnigraph.engine.write.transaction import (
    Author,
    PreparedWrite,
    Transaction,
    begin,
    commit_write,
    require_schema,
)
from omnigraph.errors import (
    BadRequest,
    EmbeddingModelMismatch,
    EmbeddingNotConfigured,
    InvalidValue,
    OmnigraphError,
)
from omnigraph.lang.schema.catalog import Catalog, Property
from omnigraph.progress import Stage, progress_to, stage
from omnigraph.storage.blobs import read_blob_bytes, to_writable
from omnigraph.storage.fragments import list_fragments
from omnigraph.storage.tables import Table


def build_update(transaction: Transaction, job: EmbedJob, made: NewVectors) -> pa.Table:
    """The stored rows with their new vectors.

    Rows whose text or vector changed meanwhile, or that are gone, are skipped: the later write wins.
    """
    table = transaction.table(job.target.key)
    plain = [name for name in job.target.schema.names if name not in job.blobs]
    rows = table.take(pa.array(made.row_ids), plain)
    look = read_state(job, rows)
    # Row ids alone prove nothing: an overwritten table may use them again.
    places = pc.index_in(combine_chunks(rows.column(ID)), value_set=made.ids)
    found = places.is_valid().to_numpy(zero_copy_only=False)
    at = pc.fill_null(places, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    same = found & (look.texts == made.texts[at]) & (look.owners == made.before[at])
    kept, at = rows.filter(pa.array(same)), at[same]
    position = kept.schema.get_field_index(job.vector)
    vectors = made.vectors.take(pa.array(at))
    kept = kept.set_column(position, job.target.schema.field(job.vector), vectors)
    kept = _with_blobs(table, job, kept, pa.array(made.row_ids[at]))
    return to_writable(kept.select(job.target.schema.names), job.target.schema)


def _with_blobs(table: Table, job: EmbedJob, rows: pa.Table, row_ids: pa.Array) -> pa.Table:
    for name in job.blobs:
        data = read_blob_bytes(table, name, row_ids) if len(row_ids) else pa.array([], pa.large_binary())
        rows = rows.append_column(name, pa.chunked_array([data]))
    return rows


BYTES_PER_COMMIT = 96 * 2**20
"""What the rows of a commit may take in memory; larger ones make smaller commits. An upsert has 300 MB."""

_ROWS_PER_TASK = 2048
_TASKS_PER_CORE = 4
_FEWEST_PER_TASK = 64


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """What to fill, and how."""

    types: tuple[str, ...] | None = None
    everything: bool = False
    batch: int = ROWS_PER_COMMIT
    dry_run: bool = False


def embed(graph: OpenGraph, branch: str, options: EmbedOptions) -> EmbedResult:
    """Fill the vectors of a branch, by the provider of the graph, or that of the environment."""
    types, batch = options.get("types"), options.get("batch", ROWS_PER_COMMIT)
    request = EmbedRequest(
        None if types is None else (types,) if isinstance(types, str) else tuple(types),
        options.get("everything", False),
        batch,
        options.get("dry_run", False),
    )
    if batch < 1:
        raise InvalidValue(f"batch must be at least 1, got {batch}")
    author = Author(branch, options.get("actor"), message=options.get("message"))
    choose = partial(select_engine, options.get("engine", "auto"))
    settings = graph.embedding or EmbedSettings.from_environment()
    with progress_to(options.get("progress")):
        return fill_vectors(graph, author, request, settings, choose)


def fill_vectors(
    graph: OpenGraph,
    author: Author,
    request: EmbedRequest,
    settings: EmbedSettings | None,
    choose: ChooseEngine | None = None,
) -> EmbedResult:
    """Fill the vectors of a branch, by a provider; without one, only report what is missing."""
    if not request.dry_run:
        graph.permissions.require("change", branch=author.branch, actor=author.actor)
    begun = time.monotonic()
    if settings is None and not request.dry_run:
        raise EmbeddingNotConfigured(
            "filling vectors needs an embedding provider, and none is configured",
            remedy=f"set {PROVIDER_SETTING} to one of {', '.join(PROVIDERS)}",
        )
    first = begin(graph, author)
    wanted = _properties_to_fill(first.schema.catalog, request.types)
    if settings is not None:
        _require_models(wanted, settings.model)
    tables = {table_key("node", name) for name, _ in wanted}
    size = sum(one.bytes for key in tables for one in list_fragments(first.table(key)))
    engine = choose(size) if choose is not None else None
    engine = engine or Engine(LocalRunner(), f"{size} bytes to read")
    filling = _FillRun(graph, author, request, settings, engine.runner, first.schema.catalog.fingerprint)
    done = tuple(filling.run(name, declared) for name, declared in wanted)
    return EmbedResult(
        branch=author.branch,
        model=settings.model if settings else None,
        properties=done,
        commits=tuple(filling.commits),
        pending_indexes=filling.pending_indexes,
        engine=engine.runner.name,
        why=engine.why,
        seconds=time.monotonic() - begun,
        dry_run=request.dry_run,
    )


class _FillRun:
    """One run over all its properties."""

    def __init__(
        self,
        graph: OpenGraph,
        author: Author,
        request: EmbedRequest,
        settings: EmbedSettings | None,
        runner: Runner,
        schema: str,
    ) -> None:
        self._graph = graph
        self._author = author
        self._request = request
        self._settings = settings
        self._runner = runner
        self._schema = schema
        self.commits: list[Commit] = []
        self.pending_indexes: PendingIndexes = {}
        """As the last commit left them."""

    def run(self, type_name: str, declared: Property) -> FilledProperty:
        """Fill one property."""
        job = self._build_job(type_name, declared)
        if not self._request.dry_run:
            merge_files(job.root, job.notes)
        found = self._find_stale_rows(job)
        done = FilledProperty(type_name, declared.name, len(found.row_ids))
        if self._request.dry_run:
            return done
        with stage(f"embed {job.path}", tasks=None, rows=done.found) as filling:
            for part in split_into_commits(found, self._request.batch):
                done = self._fill_part(job, part, done, filling)
        return done

    def _build_job(self, type_name: str, declared: Property) -> EmbedJob:
        transaction = begin(self._graph, self._author)
        require_schema(transaction, self._schema)
        key = table_key("node", type_name)
        assert declared.embed is not None
        return EmbedJob(
            self._graph.root.uri,
            transaction.base.entries[key],
            transaction.targets[key],
            declared.embed.source,
            declared.name,
            self._settings,
            self._request.everything,
            self._request.dry_run,
        )

    def _find_stale_rows(self, job: EmbedJob) -> StaleRows:
        answers = list(
            self._runner.each(
                "find", group_fragments(list_fragments(job.table)), partial(find_stale_rows, job)
            )
        )
        return StaleRows(
            np.concatenate([np.empty(0, np.uint64), *(one.row_ids for one in answers)]),
            np.concatenate([np.empty(0, np.int64), *(one.sizes for one in answers)]),
        )

    def _fill_part(
        self, job: EmbedJob, part: NDArray[np.uint64], done: FilledProperty, filling: Stage
    ) -> FilledProperty:
        """Vectors for one part, and their commit; what was made before a failure is not lost."""
        made: list[NewVectors] = []
        try:
            for answer in self._runner.each("embed", self._split_part(part), partial(make_vectors, job)):
                made.append(answer)
                filling.advance(rows=_count_handled(answer))
        except OmnigraphError:
            self._commit_vectors(job, made, done)
            raise
        return self._commit_vectors(job, made, done)

    def _split_part(self, part: NDArray[np.uint64]) -> list[NDArray[np.uint64]]:
        fair = -(-len(part) // (self._runner.cores * _TASKS_PER_CORE))
        size = min(_ROWS_PER_TASK, max(_FEWEST_PER_TASK, fair))
        return [part[at : at + size] for at in range(0, len(part), size)]

    def _commit_vectors(
        self, job: EmbedJob, answers: Sequence[NewVectors], done: FilledProperty
    ) -> FilledProperty:
        refused = tuple(one for answer in answers for one in answer.refused)
        done = replace(
            done,
            refused=done.refused + len(refused),
            refusals=(*done.refusals, *refused)[:MAX_REPORTED_REFUSALS],
        )
        if not sum(map(len, answers)):
            return done
        made = concat_vectors(answers)
        has_vector = made.after != 0
        models = np.full(int(has_vector.sum()), job.model)
        store_notes(job.root, job.notes, VectorNotes(made.after[has_vector], made.texts[has_vector], models))
        update = _VectorUpdate(job, made, self._schema)
        receipt = commit_write(self._graph, self._author, update)
        if receipt is not None:
            self.commits.append(receipt.commit)
            self.pending_indexes = receipt.indexes.pending
        rows = update.rows
        cleared = rows.column(job.vector).null_count
        return replace(
            done,
            embedded=done.embedded + rows.num_rows - cleared,
            cleared=done.cleared + cleared,
            changed_meanwhile=done.changed_meanwhile + len(made) - rows.num_rows,
        )


class _VectorUpdate:
    """New vectors, for the rows that still have the texts they were made from."""

    def __init__(self, job: EmbedJob, made: NewVectors, schema: str) -> None:
        self._build_job = job
        self._made = made
        self._schema = schema
        self.rows = pa.table({})

    def prepare(self, transaction: Transaction) -> PreparedWrite:
        require_schema(transaction, self._schema)
        self.rows = build_update(transaction, self._build_job, self._made)
        effects = {self._build_job.target.key: UpsertRows(self.rows)} if self.rows.num_rows else {}
        # Re-read whenever it is prepared, so it may be prepared again.
        return PreparedWrite("Mutation", effects, strict=False, reads=transaction.reads)


def _count_handled(made: NewVectors) -> int:
    return len(made) + len(made.refused)


def concat_vectors(answers: Sequence[NewVectors]) -> NewVectors:
    """The vectors of several tasks."""
    return NewVectors(
        np.concatenate([one.row_ids for one in answers]),
        pa.concat_arrays([one.ids for one in answers]),
        np.concatenate([one.texts for one in answers]),
        np.concatenate([one.before for one in answers]),
        np.concatenate([one.after for one in answers]),
        pa.concat_arrays([one.vectors for one in answers]),
    )


def split_into_commits(found: StaleRows, batch: int) -> Iterator[NDArray[np.uint64]]:
    """The rows of each commit: at most so many, and not more than memory should hold."""
    ends = np.cumsum(found.sizes)
    start = 0
    while start < len(ends):
        spent = ends[start - 1] if start else 0
        room = int(np.searchsorted(ends, spent + BYTES_PER_COMMIT, side="right"))
        end = max(start + 1, min(start + batch, room))
        yield found.row_ids[start:end]
        start = end


def _properties_to_fill(catalog: Catalog, types: Iterable[str] | None) -> list[tuple[str, Property]]:
    """The properties to be filled, by type."""
    every = {
        name: [declared for declared in node.properties.values() if declared.embed is not None]
        for name, node in sorted(catalog.nodes.items())
    }
    filled = [name for name, found in every.items() if found]
    if not filled:
        raise BadRequest(
            "no property of the schema is to be embedded",
            remedy='declare one as in `about: Vector(256)? @embed(body, model="...")`',
        )
    asked = filled if types is None else [name.removeprefix("node:") for name in dict.fromkeys(types)]
    for name in asked:
        if name not in filled:
            reason = "has no property with `@embed`" if name in every else "is not a node type"
            raise BadRequest(f"'{name}' {reason}", remedy=f"choose from: {', '.join(filled)}")
    return [(name, declared) for name in asked for declared in every[name]]


def _require_models(wanted: Iterable[tuple[str, Property]], model: str) -> None:
    for name, declared in wanted:
        recorded = declared.embed.model if declared.embed else None
        if recorded is not None and recorded != model:
            raise EmbeddingModelMismatch(f"{name}.{declared.name}", recorded=recorded, configured=model)
