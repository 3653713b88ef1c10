"""Mutations: statements of a query, gathered over pending rows and committed once."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import field, replace
from itertools import groupby

import numpy as np
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.display.text import format_total
from omnigraph.engine.commit.plan import AppendRows, DeleteRows, Effect, UpsertRows
from omnigraph.engine.commit.protocol import Receipt
from omnigraph.engine.commit.schema_lock import find_lock, recover_stale_lock_if_free
from omnigraph.engine.constraints.change_rules import check_mutation
from omnigraph.engine.constraints.table_change import TableChange, is_among, last_rows
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.schema_files import LiveSchema
from omnigraph.engine.graph.table_types import ID, TableType
from omnigraph.engine.rows.ids import generate_ids
from omnigraph.engine.rows.predicate import Bindings, bind_predicate, evaluate_rows, render_predicate
from omnigraph.engine.upkeep.declared_indexes import PendingIndexes
from omnigraph.engine.write.pending_rows import (
    PendingLimits,
    PendingRows,
    Values,
    assign_values,
    build_edges,
    build_nodes,
    missing_value_error,
    read_matched_rows,
)
from omnigraph.engine.write.staged_update import stage_update
from omnigraph.engine.write.transaction import (
    Author,
    PreparedWrite,
    Transaction,
    commit_write,
)
from omnigraph.errors import CompileError, InvalidValue, KeyConflict, OmnigraphError, ReadSetChanged
from omnigraph.lang.query.compile import CompiledMutation
from omnigraph.lang.query.resolved import (
    DeleteEdges,
    DeleteNodes,
    InsertEdge,
    InsertNode,
    Statement,
    UpdateEdges,
    UpdateNodes,
)
from omnigraph.lang.query.terms import Const, Instant, ParamRef, Predicate, Term
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.types import STRING, ValueType
from omnigraph.lang.values import Stored, convert
from omnigraph.storage.location import Location
from omnigraph.storage.pieces import Pieces
from omnigraph.storage.staging import Counts
from omnigraph.storage.tables import Table

_log = logging.getLogger(__name__)

_ATTEMPTS = 5
"""For how many schemas a mutation is compiled before it gives up."""

_CREATE_REMEDY = "use `upsert` to replace it, or `update` to change some of its properties"


@dataclass(frozen=True, slots=True)
class WriteCounts:
    """How many rows of one type a mutation added, replaced and removed."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class MutationResult:
    """What a mutation did."""

    affected_nodes: int
    affected_edges: int
    commit: Commit | None
    """None when nothing matched, and so nothing was written."""
    query: str = ""
    """The name of the query; empty when the statements came from Python."""
    tables: Mapping[str, WriteCounts] = field(default_factory=dict)
    """What happened to the rows that are stored, by table: `node:Person`, `edge:Knows`."""
    pending_indexes: PendingIndexes = field(default_factory=dict, hash=False)
    """Columns whose declared index is not built yet or lags, by table; reads are right without."""

    def __repr__(self) -> str:
        commit = "no commit" if self.commit is None else f"commit {self.commit.id}"
        nodes, edges = format_total(self.affected_nodes, "node"), format_total(self.affected_edges, "edge")
        return f"<MutationResult {nodes}, {edges}, {commit}>"


class SchemaMoved(Exception):
    """A mutation was compiled for another schema than the one that holds: nothing was written.

    For callers inside the package, which compile it again: it may mean something else, or nothing any more.
    """

    def __init__(self, expected: str, catalog: Catalog) -> None:
        super().__init__(f"the schema is {catalog.fingerprint}, not {expected}")
        self.expected = expected
        self.catalog = catalog
        """What the write found."""

    def conflict(self) -> ReadSetChanged:
        """Return what a caller gets that cannot compile again."""
        return ReadSetChanged("schema", expected=self.expected, actual=self.catalog.fingerprint)


class MutationSchema:
    """The schema to compile a mutation for, from attempt to attempt.

    First the one that was read last, because the write reads the schema itself; then what the write finds.
    """

    def __init__(self, graph: OpenGraph) -> None:
        self._graph = graph
        self._is_current = graph.last_schema is None
        self._attempts = 1
        self.catalog = (graph.last_schema or graph.schema()).catalog

    def follow(self, moved: SchemaMoved) -> None:
        """Go on with the schema that a write found; raises a conflict when it changes all the time."""
        self._continue_with(moved.catalog, moved.conflict())

    def reread(self, wrong: OmnigraphError) -> None:
        """Read the schema after a mutation did not compile; raises `wrong` where that would not help."""
        if self._is_current and not (isinstance(wrong, CompileError) and self._finish_schema_change()):
            raise wrong
        self._continue_with(self._graph.schema().catalog, wrong)

    def _finish_schema_change(self) -> bool:
        """A change of the schema that died may be visible, and its files not in place yet."""
        return find_lock(self._graph.root) is not None and recover_stale_lock_if_free(self._graph)

    def _continue_with(self, catalog: Catalog, failure: OmnigraphError) -> None:
        if self._attempts == _ATTEMPTS:
            raise failure
        self._attempts += 1
        self._is_current = True
        self.catalog = catalog


def mutate(
    graph: OpenGraph,
    compiled: CompiledMutation,
    parameters: Mapping[str, Stored],
    author: Author,
    limits: PendingLimits | None = None,
) -> MutationResult:
    """Carry out a mutation on a branch: all of it, in one commit, or nothing.

    Raises `SchemaMoved` when it was compiled for another schema than the one that holds.
    """
    done = run_statements(graph, compiled.statements, parameters, author, compiled.schema, limits=limits)
    return replace(done, query=compiled.name)


def run_statements(
    graph: OpenGraph,
    statements: Sequence[Statement],
    parameters: Mapping[str, Stored],
    author: Author,
    schema: str,
    *,
    limits: PendingLimits | None = None,
    ids: Sequence[str] | None = None,
    has_chosen_ids: bool = False,
) -> MutationResult:
    """Carry out statements on a branch: all of them, in one commit, or none.

    `schema` is the fingerprint of the one that they were checked against: under another one they may mean
    something else, and this raises `SchemaMoved`. `ids` has an id for each statement, if they are known.
    Those that another process chose may be stored already, which raises `KeyConflict`.
    """
    graph.permissions.require("change", branch=author.branch, actor=author.actor)
    milliseconds = graph.root.clock() // 1000
    # Drawn once: a write that is prepared again stores the same ids and the same moment.
    new_ids = generate_ids(len(statements), milliseconds) if ids is None else pa.array(ids, pa.string())
    bindings = Bindings(parameters, milliseconds)
    with closing(_Scratch(graph)) as scratch:
        mutation = _Mutation(statements, new_ids, bindings, limits, schema, has_chosen_ids, scratch)
        tables = _find_tables(statements, graph.last_schema)
        return mutation.result(commit_write(graph, author, mutation, is_quick=True, tables=tables))


def _find_tables(statements: Sequence[Statement], schema: LiveSchema | None) -> frozenset[str] | None:
    """Return the tables that statements touch; None where that takes looking at rows."""
    found: set[str] = set()
    for statement in statements:
        name = statement.type_name
        match statement:
            case InsertNode() | UpdateNodes():
                found.add(table_key("node", name))
            case InsertEdge() | UpdateEdges():
                edge = None if schema is None else schema.catalog.edges.get(name)
                if edge is None:
                    return None
                found |= {table_key("node", end) for end in (edge.source, edge.target)}
                found.add(table_key("edge", name))
            case _:
                return None  # what else is deleted with these
    return frozenset(found)


class _Scratch:
    """Folders for rows that wait in files; none of them is left at the end."""

    def __init__(self, graph: OpenGraph) -> None:
        self._root = graph.root
        self._folders: list[Location] = []

    def make_folder(self) -> Location:
        """Return a new folder."""
        self._folders.append(self._root.layout.staging / self._root.new_id())
        return self._folders[-1]

    def clear(self) -> None:
        """Remove what an earlier attempt wrote."""
        while self._folders:
            self._root.objects.delete_prefix(self._folders.pop())

    def close(self) -> None:
        """Remove every file that did not become part of a table; the write is over by now."""
        try:
            self.clear()
        except OmnigraphError as failure:
            _log.warning("files of a mutation are left for cleanup: %s", failure)


class _Mutation:
    """Statements, carried out on the state of the branch that each attempt finds."""

    def __init__(
        self,
        statements: Sequence[Statement],
        new_ids: pa.Array,
        bindings: Bindings,
        limits: PendingLimits | None,
        schema: str,
        has_chosen_ids: bool,
        scratch: _Scratch,
    ) -> None:
        self._scratch = scratch
        self._has_chosen_ids = has_chosen_ids
        self._statements = statements
        self._new_ids = new_ids
        self._bindings = bindings
        self._limits = limits
        self._schema = schema
        self._last: _Execution | None = None

    def prepare(self, transaction: Transaction) -> PreparedWrite:
        if transaction.schema.catalog.fingerprint != self._schema:
            raise SchemaMoved(self._schema, transaction.schema.catalog)
        limits, scratch = self._limits, self._scratch
        scratch.clear()
        self._last = _Execution(transaction, self._bindings, limits, self._has_chosen_ids, scratch)
        self._last.run(self._statements, self._new_ids)
        return self._last.prepare()

    def result(self, receipt: Receipt | None) -> MutationResult:
        last = self._last
        assert last is not None, "a write is prepared before it ends"
        if receipt is None:
            return MutationResult(last.nodes, last.edges, None)
        tables = {key: _count_writes(counts) for key, counts in receipt.counts.items()}
        return MutationResult(
            last.nodes, last.edges, receipt.commit, tables=tables, pending_indexes=receipt.indexes.pending
        )


def _count_writes(counts: Counts) -> WriteCounts:
    return WriteCounts(counts.inserted or 0, counts.updated or 0, counts.deleted or 0)


def _find_batch(statement: Statement) -> tuple[type[Statement], str, bool]:
    """Return what statements have in common that may run as one batch."""
    strict = isinstance(statement, InsertNode | InsertEdge) and statement.strict
    return type(statement), statement.type_name, strict


class _Execution:
    """The statements of one mutation on one state of the branch."""

    def __init__(
        self,
        transaction: Transaction,
        bindings: Bindings,
        limits: PendingLimits | None,
        has_chosen_ids: bool,
        scratch: _Scratch,
    ) -> None:
        self._transaction = transaction
        self._scratch = scratch
        self._staged: dict[str, Pieces] = {}
        self._has_chosen_ids = has_chosen_ids
        self._bindings = bindings
        self._limits = limits
        self._pending: dict[str, PendingRows] = {}
        self._replacing: set[str] = set()
        self._strict = False
        self.nodes = 0
        self.edges = 0

    def run(self, statements: Sequence[Statement], new_ids: pa.Array) -> None:
        """Gather what the statements write, then check all of it together."""
        position = 0
        # Inserts into one type that follow one another become one batch.
        for _, group in groupby(statements, key=_find_batch):
            run = list(group)
            self._insert_batch(run, new_ids.slice(position, len(run)))
            position += len(run)
        self._delete_dangling_edges()
        check_mutation(self._build_changes(), self._transaction.targets, self._transaction.stored)

    def prepare(self) -> PreparedWrite:
        """The effects on the tables that really change."""
        effects = {key: self._build_effect(key, one.change()) for key, one in self._pending.items()}
        effects |= {key: UpsertRows(rows) for key, rows in self._staged.items()}
        return PreparedWrite(
            "Mutation",
            {key: effect for key, effect in effects.items() if effect is not None},
            self._strict,
            self._transaction.reads,
        )

    def _build_changes(self) -> dict[str, TableChange]:
        changes = {key: one.change() for key, one in self._pending.items()}
        return {key: change for key, change in changes.items() if change.rows.num_rows or len(change.deleted)}

    def _build_effect(self, key: str, change: TableChange) -> Effect | None:
        if change.rows.num_rows:
            return UpsertRows(change.rows) if key in self._replacing else AppendRows(change.rows)
        return DeleteRows(change.deleted.combine_chunks()) if len(change.deleted) else None

    # --- statements ------------------------------------------------------------------------------

    def _insert_batch(self, run: list[Statement], new_ids: pa.Array) -> None:
        first = run[0]
        if isinstance(first, InsertNode):
            self._insert_nodes([one for one in run if isinstance(one, InsertNode)], new_ids)
        elif isinstance(first, InsertEdge):
            self._insert_edges([one for one in run if isinstance(one, InsertEdge)], new_ids)
        else:
            for statement in run:
                self._run_statement(statement)

    def _run_statement(self, statement: Statement) -> None:
        self._strict = True
        match statement:
            case UpdateNodes():
                self.nodes += self._update_rows("node", statement)
            case UpdateEdges():
                self.edges += self._update_rows("edge", statement)
            case DeleteNodes():
                self._delete_rows(table_key("node", statement.type_name), statement.where)
            case DeleteEdges():
                self._delete_rows(table_key("edge", statement.type_name), statement.where)

    def _insert_nodes(self, run: list[InsertNode], new_ids: pa.Array) -> None:
        pending = self._pending_rows("node", run[0].type_name)
        rows = build_nodes(
            pending.target, [self._evaluate_values(pending, one.values) for one in run], new_ids
        )
        if pending.target.identity:
            if run[0].strict:
                self._refuse_stored(pending, rows)
            self._replacing.add(pending.target.key)
        else:
            self._require_new(pending.target, new_ids)
        pending.put(rows)
        self.nodes += len(run)

    def _insert_edges(self, run: list[InsertEdge], new_ids: pa.Array) -> None:
        pending = self._pending_rows("edge", run[0].type_name)
        rows = build_edges(
            pending.target,
            [self._evaluate_end("from", one.source) for one in run],
            [self._evaluate_end("to", one.target) for one in run],
            [self._evaluate_values(pending, one.values) for one in run],
            new_ids,
        )
        if pending.target.identity:
            if run[0].strict:
                self._refuse_stored(pending, rows)
            self._replacing.add(pending.target.key)
        else:
            self._require_new(pending.target, new_ids)
        pending.put(rows)
        self.edges += len(run)

    def _refuse_stored(self, pending: PendingRows, rows: pa.Table) -> None:
        """Fail when a row to be created has the id of a stored one, of a pending one or of another."""
        target, ids = pending.target, rows.column(ID)
        stored = self._transaction.stored.existing(target.key, ids)
        taken = is_among(
            ids, pa.chunked_array([*stored.chunks, *pending.rows().column(ID).chunks], pa.string())
        )
        taken |= last_rows(ids) != np.arange(len(ids))
        if taken.any():
            first = ids[int(np.flatnonzero(taken)[0])].as_py()
            raise KeyConflict(target.kind, target.name, first, remedy=_CREATE_REMEDY)

    def _require_new(self, target: TableType, ids: pa.Array) -> None:
        """Fail when a stored row has an id that another process chose; ids drawn here are new."""
        if not self._has_chosen_ids:
            return
        taken = self._transaction.stored.existing(target.key, ids)
        if len(taken):
            raise KeyConflict(target.kind, target.name, taken[0].as_py(), remedy="begin another write")

    def _update_rows(self, kind: str, statement: UpdateNodes | UpdateEdges) -> int:
        """Assign values to the rows that match, and return how many there are."""
        pending = self._pending_rows(kind, statement.type_name)
        # Before rows are looked for: whether a value is wrong must not depend on them.
        values = self._evaluate_values(pending, statement.values)
        test = bind_predicate(statement.where, self._bindings)
        table = self._transaction.table(pending.target.key)
        where = self._render_filter(pending.target, statement.where)
        matched = read_matched_rows(
            table, pending, where, lambda rows: evaluate_rows(rows, test), values.keys()
        )
        if matched is None:
            return self._stage_update(table, pending.target, where, values)
        if matched.num_rows:
            self._replacing.add(pending.target.key)
            pending.put(assign_values(matched, pending.target, values))
        return int(matched.num_rows)

    def _stage_update(self, table: Table, target: TableType, where: str, values: Values) -> int:
        """Write the rows of an update to files, because memory does not hold them; return how many."""
        stored, place = self._transaction.stored, self._scratch.make_folder()
        self._staged[target.key] = rows = stage_update(table, target, where, values, place, stored)
        return rows.rows

    def _delete_rows(self, key: str, where: Predicate) -> None:
        """Deletes all look at the state before the query."""
        target = self._transaction.targets[key]
        found = self._transaction.table(key).scan([ID], where=self._render_filter(target, where))
        self._remove_ids(key, found.column(ID))

    def _render_filter(self, target: TableType, where: Predicate) -> str:
        return render_predicate(where, self._bindings, target.identity)

    def _delete_dangling_edges(self) -> None:
        """An edge goes with either of its nodes."""
        for name in [one.target.name for one in self._pending.values() if one.target.kind == "node"]:
            gone = self._pending[table_key("node", name)].deleted.combine_chunks()
            if not len(gone):
                continue
            for edge in self._transaction.schema.catalog.incident_edges(name):
                key = table_key("edge", edge.name)
                if edge.source == name:
                    self._remove_ids(key, self._transaction.stored.edges_at(key, "src", gone).column(ID))
                if edge.target == name:
                    self._remove_ids(key, self._transaction.stored.edges_at(key, "dst", gone).column(ID))

    def _remove_ids(self, key: str, ids: pa.ChunkedArray) -> None:
        pending = self._pending_for(key)
        before = len(pending.deleted)
        pending.delete(ids)
        removed = len(pending.deleted) - before
        if pending.target.kind == "node":
            self.nodes += removed
        else:
            self.edges += removed

    # --- values ----------------------------------------------------------------------------------

    def _pending_rows(self, kind: str, type_name: str) -> PendingRows:
        return self._pending_for(f"{kind}:{type_name}")

    def _pending_for(self, key: str) -> PendingRows:
        if key not in self._pending:
            self._pending[key] = PendingRows(self._transaction.targets[key], self._limits)
        if key in self._staged:
            raise self._pending[key].refuse_more(self._staged[key].rows)
        return self._pending[key]

    def _evaluate_values(self, pending: PendingRows, values: tuple[tuple[str, Term], ...]) -> Values:
        return {name: self._evaluate_property(pending.target, name, term) for name, term in values}

    def _evaluate_property(self, target: TableType, name: str, term: Term) -> Stored:
        """Return the value of a property; errors name the property."""
        type_ = target.owner.properties[name].type
        try:
            value = self._evaluate_term(term, type_.with_nullable())
        except InvalidValue as wrong:
            remedy = wrong.remedy or f"look at the value for `{target.name}.{name}`"
            raise InvalidValue(wrong.message, remedy=remedy) from wrong
        if value is None and not type_.nullable:
            raise missing_value_error(target, name)
        return value

    def _evaluate_term(self, term: Term, type_: ValueType) -> Stored:
        match term:
            case Const(value=value):
                return convert(value, type_)
            case ParamRef(name=name):
                return convert(self._bindings.parameters[name], type_)
            case Instant():
                return convert(self._bindings.now, type_)
        raise AssertionError(f"{type(term).__name__} is no value of a statement")

    def _evaluate_end(self, name: str, term: Term) -> str:
        value = self._evaluate_term(term, STRING.with_nullable())
        if not isinstance(value, str):
            raise InvalidValue(f"edge endpoint '{name}' must be the id of a node, got null")
        return value
