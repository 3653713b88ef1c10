"""A stored graph that moves by random steps, and beside it what every state of it must show."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

import omnigraph as og
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.graph import Graph
from omnigraph.query.read_cache import shared_cache
from tests.query import oracle
from tests.query.generate import CATALOG, SCHEMA, Query, stored_values
from tests.query.test_against_oracle import ask_oracle, disagreement

SIDE = "side"
THINGS = [f"t{number}" for number in range(40)]
PLACES = [f"p{number}" for number in range(8)]
NODES = {"Thing": THINGS, "Place": PLACES}
EDGES = {name: CATALOG.edges[name] for name in ("Knows", "Likes", "Visits", "Near")}


def make_query(text: str, scored: tuple[int, ...] = ()) -> Query:
    return Query(f"query q() {{ {text} }}", {}, scored=frozenset(scored), approximate=frozenset(scored))


QUERIES = [
    make_query("match { $a: Thing } return { $a.k, $a.s, $a.i, $a.tags, $a.v, $a.day }"),
    make_query('match { $a: Thing { k: "t3" } } return { $a.k, $a.i, $a.t }'),
    make_query('match { $a: Thing  $a.k in ["t1", "t5", "t9", "tx"] } return { $a.k, $a.x }'),
    make_query("match { $a: Thing  $a.i >= 1 } return { $a.k, $a.i } order { $a.i desc }"),
    make_query(
        "match { $a: Thing } return { $a.kind as kind, count($a) as n, sum($a.x) as x } order { kind }"
    ),
    make_query("match { $a: Thing  $a knows $b } return { $a.k, $b.k, $b.s }"),
    make_query("match { $a: Thing  $a $e:knows $b } return { $a.k, $e.i, $e.s, $b.i }"),
    make_query("match { $a: Thing  $a <knows> $b } return { $a.k, $b.k }"),
    make_query("match { $a: Thing  $a knows{1,3} $b } return { $a.k, $b.k }"),
    make_query("match { $a: Thing  $a knows{2,4} $b  $b.i >= 1 } return { $a.k, $b.k }"),
    make_query("match { $a: Thing  $a knows $b  $b likes $a } return { $a.k, $b.k }"),
    make_query("match { $a: Thing  $a $e:knows $b  $b likes $c } return { count($a) as n }"),
    make_query("match { $a: Thing  not { $a likes $_ } } return { $a.k }"),
    make_query("match { $a: Thing  optional { $a visits $p } } return { $a.k, $p.name }"),
    make_query("match { $p: Place  $a visits $p } return { $p as p, count($a) as n } order { n desc, p }"),
    make_query("match { $p: Place  $p near{1,2} $q  $a visits $q } return distinct { $p as p, $a.k as k }"),
    make_query('match { $a: Thing  search($a.t, "graph quartz") } return { $a.k }'),
    make_query('match { $a: Thing  fuzzy($a.t, "lemno") } return { $a.k, $a.t }'),
    make_query('match { $a: Thing  $b knows $a } return { $a.k, bm25($a.t, "zinc lemon") as r }', (1,)),
    make_query("match { $a: Thing } return { $a.k, $a.v } order { nearest($a.v, [1.0, 0.5]) } limit 4"),
    make_query("match { $a: Thing  $a knows $b } return { $b.k, nearest($b.v, [3.0, 3.0]) as d }", (1,)),
]


def load_lines(
    graph: Graph, lines: list[str], mode: Literal["append", "merge", "overwrite"], branch: str
) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.write("\n".join(lines))
        file.flush()
        graph.load(file.name, mode=mode, branch=branch)


@dataclass
class Moving:
    """A graph that stays open and warm while it moves."""

    place: Path
    graph: Graph
    states: dict[str, oracle.Graph] = field(default_factory=lambda: {MAIN: oracle.Graph()})
    past: list[tuple[str, oracle.Graph]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    """What happened so far, to be read when a test fails."""

    def step(self, kind: str, seed: int) -> None:
        random = Random(seed)
        branch = random.choice(sorted(self.states))
        self.done.append(f"{kind} on {branch}, seed {seed}")
        STEPS[kind](self, branch, random)
        newest = next(iter(self.graph.commits.list(branch if branch in self.states else MAIN)))
        if branch in self.states and kind not in UPKEEP:
            self.past.append((newest.id, copy.deepcopy(self.states[branch])))

    # --- comparing -----------------------------------------------------------------------------------

    def check(self, queries: list[Query]) -> None:
        """Every branch shows its state to the warm handle."""
        for branch, state in self.states.items():
            for query in queries:
                self.require(query, state, branch=branch)

    def check_past(self, queries: list[Query], seed: int) -> None:
        """So does a commit of the past."""
        if self.past:
            commit, state = Random(seed).choice(self.past)
            for query in queries:
                self.require(query, state, commit=commit)

    def check_cold(self, queries: list[Query]) -> None:
        """A handle that was opened just now, in a process that knows nothing, says the same."""
        wanted = [(query, branch) for query in queries for branch in self.states]
        warm = [self.graph.query(query.text, query.params, branch=branch) for query, branch in wanted]
        shared_cache().forget()
        with og.open(self.place, read_only=True) as graph:
            for (query, branch), found in zip(wanted, warm, strict=True):
                fresh = graph.query(query.text, query.params, branch=branch)
                assert comparable_rows(query, found) == comparable_rows(query, fresh), self._describe(query)

    def require(self, query: Query, state: oracle.Graph, **target: str) -> None:
        """The warm handle shows a state; the few texts that do not compile are left out."""
        wanted = ask_oracle(query, state)
        if wanted is not None:
            found = self.graph.query(query.text, query.params, **target).to_arrow()  # type: ignore[arg-type]
            wrong = disagreement(query, wanted, found)
            assert wrong is None, f"{self._describe(query)}\ngave {wrong}"

    def _describe(self, query: Query) -> str:
        return "\n".join([*self.done, query.text, f"with {query.params}"])

    # --- steps ---------------------------------------------------------------------------------------

    def merge_nodes(self, branch: str, random: Random) -> None:
        name = random.choice(sorted(NODES))
        lines = [node_line(name, id_, random) for id_ in sample(NODES[name], random, 4)]
        self._merge(lines, branch)

    def append_nodes(self, branch: str, random: Random) -> None:
        known = self.states[branch].nodes.get("Thing", {})
        lines = [node_line("Thing", id_, random) for id_ in THINGS if id_ not in known][
            : random.randint(1, 3)
        ]
        if lines:
            load_lines(self.graph, lines, "append", branch)
            self._put(lines, branch)

    def update_nodes(self, branch: str, random: Random) -> None:
        ids = sample(THINGS, random, random.choice([1, 1, 3, 20]))
        data = record("Thing", random)
        number, text, vector = data["i"], data["t"], data["v"]
        self.graph.mutate(
            "query q($ids: [String], $i: I32?, $t: String?, $v: Vector(2)?) "
            "{ update Thing set { i: $i, t: $t, v: $v } where k in $ids }",
            {"ids": ids, "i": number, "t": text, "v": vector},
            branch=branch,
        )
        for id_ in ids:
            props = self.states[branch].nodes.get("Thing", {}).get(id_)
            if props is not None:
                props.update(i=number, t=text, v=None if vector is None else tuple(vector))

    def touch(self, id_: str, random: Random) -> None:
        """One node rewritten."""
        self._merge([node_line("Thing", id_, random)], MAIN)

    def many_updates(self, branch: str, random: Random) -> None:
        """So often that most positions are dead and the rows are renumbered."""
        for _ in range(3):
            self.update_nodes(branch, random)

    def merge_edges(self, branch: str, random: Random) -> None:
        lines = [edge_line(self.states[branch], name, random) for name in random.choices(sorted(EDGES), k=4)]
        self._merge([line for line in lines if line], branch)

    def delete_edges(self, branch: str, random: Random) -> None:
        name = random.choice(sorted(EDGES))
        end, id_ = random.choice(["from", "to"]), random.choice(NODES[EDGES[name].source])
        self.graph.mutate(f'query q() {{ delete {name} where {end} = "{id_}" }}', branch=branch)
        edges = self.states[branch].edges
        kept = [e for e in edges.get(name, []) if (e.src if end == "from" else e.dst) != id_]
        edges[name] = kept

    def delete_nodes(self, branch: str, random: Random) -> None:
        name, id_ = "Thing", random.choice(THINGS)
        self.graph.mutate(f'query q() {{ delete {name} where k = "{id_}" }}', branch=branch)
        self.states[branch].delete_node(CATALOG, name, id_)

    def empty(self, branch: str, random: Random) -> None:
        self.graph.mutate("query q() { delete Thing where k is not null }", branch=branch)
        for id_ in THINGS:
            self.states[branch].delete_node(CATALOG, "Thing", id_)

    def overwrite_nodes(self, branch: str, random: Random) -> None:
        """Replace all nodes of a type; those that edges need stay."""
        state = self.states[branch]
        ends = [(CATALOG.edges[name], edge) for name, edges in state.edges.items() for edge in edges]
        needed = {edge.src for type_, edge in ends if type_.source == "Thing"}
        needed |= {edge.dst for type_, edge in ends if type_.target == "Thing"}
        ids = sorted(needed | set(sample(THINGS, random, 3)))
        lines = [node_line("Thing", id_, random) for id_ in ids]
        load_lines(self.graph, lines, "overwrite", branch)
        state.nodes["Thing"] = {}
        self._put(lines, branch)

    def overwrite_edges(self, branch: str, random: Random) -> None:
        drawn = [edge_line(self.states[branch], "Knows", random) for _ in range(25)]
        lines = list({json.loads(line)["data"]["id"]: line for line in drawn if line}.values())
        if lines:
            load_lines(self.graph, lines, "overwrite", branch)
            self.states[branch].edges["Knows"] = []
            self._put(lines, branch)

    def optimize(self, branch: str, random: Random) -> None:
        self.graph.optimize(branch)

    def index(self, branch: str, random: Random) -> None:
        self.graph.ensure_indices(branch)

    def fork(self, branch: str, random: Random) -> None:
        """The other branch is made, or deleted and made again under its name."""
        if SIDE in self.states:
            self.graph.branches.delete(SIDE)
            known = {commit.id for commit in self.graph.commits.list()}
            self.past = [(commit, state) for commit, state in self.past if commit in known]
        self.graph.branches.create(SIDE)
        self.states[SIDE] = copy.deepcopy(self.states[MAIN])

    def _merge(self, lines: list[str], branch: str) -> None:
        if lines:
            lines = list({line_key(line): line for line in lines}.values())
            load_lines(self.graph, lines, "merge", branch)
            self._put(lines, branch)

    def _put(self, lines: list[str], branch: str) -> None:
        state, more = self.states[branch], oracle.graph_of(CATALOG, lines)
        for name, nodes in more.nodes.items():
            state.nodes.setdefault(name, {}).update(nodes)
        for name, edges in more.edges.items():
            for edge in edges:
                state.add_edge(name, edge)


STEPS: dict[str, Callable[[Moving, str, Random], None]] = {
    "merge nodes": Moving.merge_nodes,
    "append nodes": Moving.append_nodes,
    "update nodes": Moving.update_nodes,
    "update many": Moving.many_updates,
    "merge edges": Moving.merge_edges,
    "delete edges": Moving.delete_edges,
    "delete nodes": Moving.delete_nodes,
    "empty": Moving.empty,
    "overwrite nodes": Moving.overwrite_nodes,
    "overwrite edges": Moving.overwrite_edges,
    "optimize": Moving.optimize,
    "index": Moving.index,
    "fork": Moving.fork,
}
UPKEEP = ("optimize", "index", "fork")


@contextmanager
def moving() -> Iterator[Moving]:
    """A graph with a few nodes and edges that starts to move."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "g"
        with og.init(place, schema=SCHEMA) as graph:
            made = Moving(place, graph)
            random = Random(1)
            made._merge([node_line(name, id_, random) for name in NODES for id_ in NODES[name][:34]], MAIN)
            made._merge(
                [
                    found
                    for name in EDGES
                    for _ in range(30)
                    if (found := edge_line(made.states[MAIN], name, random))
                ],
                MAIN,
            )
            yield made


def node_line(name: str, id_: str, random: Random) -> str:
    identity = {"k": id_} if name == "Thing" else {"id": id_}
    return json.dumps({"type": name, "data": record(name, random) | identity}, ensure_ascii=False)


def edge_line(state: oracle.Graph, name: str, random: Random) -> str | None:
    """An edge between nodes that exist; its id is one of few, so that edges are replaced too."""
    edge = CATALOG.edges[name]
    sources, targets = sorted(state.nodes.get(edge.source, {})), sorted(state.nodes.get(edge.target, {}))
    if not sources or not targets:
        return None
    data = record(name, random) | {"id": f"{name[0].lower()}{random.randrange(40)}"}
    ends = {"from": random.choice(sources), "to": random.choice(targets)}
    return json.dumps({"edge": name, **ends, "data": data}, ensure_ascii=False)


def record(name: str, random: Random) -> dict[str, Any]:
    owner = CATALOG.nodes.get(name) or CATALOG.edges[name]
    return {n: random.choice(stored_values(n, prop.type)) for n, prop in owner.properties.items()}


def line_key(line: str) -> tuple[str, str]:
    found = json.loads(line)
    return found.get("type") or found["edge"], found["data"].get("id") or found["data"]["k"]


def sample(pool: list[str], random: Random, most: int) -> list[str]:
    return random.sample(pool, random.randint(1, min(most, len(pool))))


def comparable_rows(query: Query, result: og.Result) -> list[str]:
    """Rows whose order says nothing; of scores only whether there is one, for an index may lag behind."""
    rows_ = (list(row.values()) for row in result.to_arrow().to_pylist())
    return sorted(
        repr([value is None if at in query.scored else value for at, value in enumerate(row)])
        for row in rows_
    )
