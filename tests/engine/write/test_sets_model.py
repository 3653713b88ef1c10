"""Loads checked against a model that knows nothing but dictionaries."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.constraints.change_rules import LoadCheckResult, check_load
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.constraints.faults import to_violations
from omnigraph.engine.rows.row_builder import LoadRows
from tests.engine.write.support import InMemory, edge, lines, load_rows, node
from tests.examples import EXAMPLES

SCHEMA = """
node A { k: String @key  n: I32?  @unique(n) }
edge E: A -> A @card(1..2) { t: I32?  @unique(t) }
"""
LOW, HIGH = 1, 2

_KEYS = st.sampled_from("abc")
_NUMBERS = st.none() | st.integers(0, 2)
_NODE = st.tuples(st.just("A"), _KEYS, _NUMBERS)
_EDGE = st.tuples(st.just("E"), st.none() | st.sampled_from(["e1", "e2", "e3"]), _KEYS, _KEYS, _NUMBERS)
_FILE = st.lists(_NODE | _EDGE, min_size=1, max_size=7)


@dataclass
class Graph:
    """Nodes with their number, edges with source, target and tag."""

    nodes: dict[str, int | None] = field(default_factory=dict)
    edges: dict[str, tuple[str, str, int | None]] = field(default_factory=dict)

    def lines(self) -> bytes:
        people = (node("A", k=k, n=n) for k, n in self.nodes.items())
        return lines(*people, *(edge("E", s, d, id=i, t=t) for i, (s, d, t) in self.edges.items()))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A graph in which every rule holds."""
    numbers = draw(st.permutations([None, 0, 1]))
    nodes = dict(zip(draw(st.sets(_KEYS)), numbers, strict=False))
    edges: dict[str, tuple[str, str, int | None]] = {}
    if nodes:
        tags = draw(st.permutations([None, 0, 1]))
        ends = draw(st.lists(st.tuples(*[st.sampled_from(sorted(nodes))] * 2), max_size=3))
        for name, (source, target), tag in zip(("e1", "e2", "e3"), ends, tags, strict=False):
            if sum(it[0] == source for it in edges.values()) < HIGH:
                edges[name] = (source, target, tag)
    return Graph(nodes, edges)


Problems = list[tuple[int | None, str]]


@dataclass
class Model:
    """What a load does, by the rules in their order."""

    before: Graph
    mode: str
    rows: list[tuple[int, tuple[Any, ...]]]
    """Line and record."""

    def __post_init__(self) -> None:
        self.nodes = [(line, row[1], row[2]) for line, row in self.rows if row[0] == "A"]
        given = [(line, row) for line, row in self.rows if row[0] == "E"]
        self.edges = [(line, row[1] or f"new{line}", *row[2:]) for line, row in given]

    def run(self) -> tuple[Problems, Graph]:
        problems = self.conflicts()
        if not problems and self.mode == "merge":
            last = {id_: line for line, id_, *_ in self.edges}
            self.edges = [it for it in self.edges if last[it[1]] == it[0]]
        for stage in (self.unique, self.ends, self.counts):
            problems = problems or stage()
        return problems, self.after()

    def conflicts(self) -> Problems:
        problems: Problems = []
        seen: set[str] = set()
        for line, k, _ in self.nodes:
            if k in seen:
                problems.append((line, f"@unique violation on A.k: value '{k}' held by '{k}' and '{k}'"))
            elif self.mode == "append" and k in self.before.nodes:
                problems.append((line, f"node type 'A' already has id '{k}'"))
            seen.add(k)
        seen = set()
        for line, id_, *_ in self.edges:
            taken = id_ in seen or (self.mode == "append" and id_ in self.before.edges)
            if taken and self.mode != "merge":
                problems.append((line, f"edge type 'E' already has id '{id_}'"))
            seen.add(id_)
        return problems

    def kept(self) -> Graph:
        """The stored rows that stay as they are."""
        drops_nodes = self.mode == "overwrite" and self.nodes
        drops_edges = self.mode == "overwrite" and self.edges
        new_nodes, new_edges = {it[1] for it in self.nodes}, {it[1] for it in self.edges}
        nodes = {} if drops_nodes else {k: n for k, n in self.before.nodes.items() if k not in new_nodes}
        edges = {} if drops_edges else {i: e for i, e in self.before.edges.items() if i not in new_edges}
        return Graph(nodes, edges)

    def after(self) -> Graph:
        kept = self.kept()
        nodes = {**kept.nodes, **{k: n for _, k, n in self.nodes}}
        return Graph(nodes, {**kept.edges, **{i: (s, d, t) for _, i, s, d, t in self.edges}})

    def unique(self) -> Problems:
        kept = self.kept()
        groups = (
            ("A.n", {n: k for k, n in kept.nodes.items()}, self.nodes),
            (
                "E.t",
                {t: i for i, (_, _, t) in kept.edges.items()},
                [(it[0], it[1], it[4]) for it in self.edges],
            ),
        )
        problems: Problems = []
        for name, stored, rows in groups:
            first: dict[int, str] = {}
            for line, id_, value in rows:
                if value is None:
                    continue
                holder = stored.get(value, first.get(value))
                if holder is not None:
                    problems.append(
                        (line, f"@unique violation on {name}: value '{value}' held by '{holder}' and '{id_}'")
                    )
                first.setdefault(value, id_)
        return problems

    def ends(self) -> Problems:
        nodes, kept = self.after().nodes, self.kept().edges.values()
        problems: Problems = []
        for place, end in ((0, "src"), (1, "dst")):
            ends = [(line, (s, d)[place]) for line, _, s, d, _ in self.edges]
            ends += [(None, it[place]) for it in kept]
            problems += [(line, f"{end} '{id_}' not found in A") for line, id_ in ends if id_ not in nodes]
        return problems

    def counts(self) -> Problems:
        after = self.after()
        total = Counter(source for source, _, _ in after.edges.values())
        lost = {e[0] for i, e in self.before.edges.items() if i not in self.kept().edges}
        problems: Problems = []
        for source in sorted({it[2] for it in self.edges} | lost):
            count = total[source]
            text = f"@card violation on edge E: source '{source}' has {count} edges"
            if count > HIGH:
                own = [it[0] for it in self.edges if it[2] == source]
                problems += [(line, f"{text} (max {HIGH})") for line in own[-(count - HIGH) :]]
            elif count < LOW and source in after.nodes:
                problems.append((None, f"{text} (min {LOW})"))
        return problems


def _name_generated(problems: Problems, news: dict[str, str]) -> Counter[tuple[int | None, str]]:
    """Generated ids by the line they were made for."""
    found: Counter[tuple[int | None, str]] = Counter()
    for line, reason in problems:
        for id_, name in news.items():
            reason = reason.replace(id_, name)  # noqa: PLW2901
        found[line, reason] += 1
    return found


def _records(rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [
        node("A", k=row[1], n=row[2])
        if row[0] == "A"
        else edge("E", row[2], row[3], t=row[4], **({"id": row[1]} if row[1] else {}))
        for row in rows
    ]


def _check_rows(
    before: Graph, rows: list[tuple[Any, ...]], mode: str, skip: bool
) -> tuple[LoadCheckResult, dict[str, LoadRows]]:
    stored = InMemory.of(before.lines(), SCHEMA)
    load = load_rows(lines(*_records(rows)), SCHEMA, size=50)
    return check_load(load, Mode(mode), stored.targets, stored, skip_bad=skip), load


@pytest.mark.fuzz
@settings(max_examples=2 * EXAMPLES)
@given(graphs(), _FILE, st.sampled_from(["append", "merge", "overwrite"]))
def test_a_load_is_checked_as_the_rules_say(before: Graph, rows: list[tuple[Any, ...]], mode: str) -> None:
    found, load = _check_rows(before, rows, mode, skip=False)
    problems, after = Model(before, mode, list(enumerate(rows, 1))).run()
    news = _new_ids(load)
    origins = {key: part.origins for key, part in load.items()}
    violations = tuple(to_violations(found.faults, origins))
    assert _name_generated([(wrong.line, wrong.reason) for wrong in violations], news) == _name_generated(
        problems, {}
    )
    if not problems:
        assert _apply_changes(before, found, news) == after


def _new_ids(load: dict[str, LoadRows]) -> dict[str, str]:
    """The model's names of generated ids."""
    part = load.get("edge:E")
    if part is None:
        return {}
    rows = zip(part.rows.column("id").to_pylist(), part.origins.line.tolist(), part.generated, strict=True)
    return {id_: f"new{line}" for id_, line, is_new in rows if is_new}


def _apply_changes(before: Graph, found: LoadCheckResult, news: dict[str, str]) -> Graph:
    nodes, edges = dict(before.nodes), dict(before.edges)
    for key, change in found.changes.items():
        table: dict[str, Any] = nodes if key == "node:A" else edges
        for id_ in change.deleted.to_pylist():
            del table[id_]
        for row in change.rows.to_pylist():
            value = row["n"] if key == "node:A" else (row["src"], row["dst"], row["t"])
            table[news.get(row["id"], row["id"])] = value
    return Graph(nodes, edges)


@pytest.mark.fuzz
@given(graphs(), _FILE, st.sampled_from(["append", "merge", "overwrite"]))
def test_what_remains_after_skipping_bad_rows_is_a_good_load(
    before: Graph, rows: list[tuple[Any, ...]], mode: str
) -> None:
    found, load = _check_rows(before, rows, mode, skip=True)
    if found.faults:
        assert any(faults.final for faults in found.faults)
        return
    dropped = {
        int(load[faults.target.key].origins.line[row])
        for faults in found.dropped
        for row in faults.rows.tolist()
    }
    # Of several rows with one explicit id a merge looks at the last one only, even when it is left out.
    last = {row[1]: line for line, row in enumerate(rows, 1) if row[0] == "E" and row[1]}
    left = [
        (line, row)
        for line, row in enumerate(rows, 1)
        if line not in dropped and not (mode == "merge" and row[0] == "E" and last.get(row[1], line) != line)
    ]
    problems, after = Model(before, mode, left).run()
    if mode == "overwrite" and {row[0] for row in rows} != {row[0] for _, row in left}:
        return  # a type of which nothing is left is emptied, which the model does not know
    assert problems == []
    assert _apply_changes(before, found, _new_ids(load)) == after
