"""Updates of more rows than a mutation holds in memory are updates like any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph import failpoints
from omnigraph.engine.write import pending_rows
from omnigraph.errors import ConstraintViolation, InvalidValue, ResourceLimitExceeded, TableVersionConflict
from omnigraph.graph import Graph
from tests.examples import EXAMPLES

SCHEMA = """
node Doc {
  k: String @key
  n: I32?
  kind: enum(a, b)?
  tag: String? @unique
  body: Blob?
  @unique(kind, n)
  @range(n, 0..100)
}
edge Cites: Doc -> Doc @card(0..3) { weight: I32? }
"""
MANY, LIMIT = 30, 7


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Documents that cite each other; tests write to branches."""
    with omnigraph.init(tmp_path_factory.mktemp("staged") / "g", schema=SCHEMA) as made:
        docs = [{"k": f"d{at:02}", "n": at, "tag": f"t{at}", "body": b"x" * at} for at in range(MANY)]
        cites = [{"from": f"d{at:02}", "to": "d00", "weight": at} for at in range(MANY)]
        made.load({"Doc": docs, "Cites": cites}, mode="append")
        yield made


@pytest.fixture
def branch(graph: Graph) -> str:
    """A branch of its own for each test."""
    name = f"b{len(graph.branches)}"
    graph.branches.create(name)
    return name


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutation holds few rows in memory."""
    monkeypatch.setenv(pending_rows.ROWS_SETTING, str(LIMIT))


def _rows(graph: Graph, branch: str, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = graph.snapshot(branch).rows(name).sort_by("id").to_pylist()
    return found


def _update(graph: Graph, branch: str, text: str) -> Any:
    return graph.mutate(f"query q() {{ {text} }}", branch=branch)


@pytest.mark.usefixtures("few")
def test_an_update_of_many_rows_is_one_commit(graph: Graph, branch: str) -> None:
    before = _rows(graph, branch, "Doc")
    done = _update(graph, branch, 'update Doc set { kind: "a" } where n >= 5')
    assert (done.affected_nodes, done.tables["node:Doc"].updated) == (MANY - 5, MANY - 5)
    assert _rows(graph, branch, "Doc") == [{**row, "kind": "a" if row["n"] >= 5 else None} for row in before]
    assert graph.commits.list(branch)[0] == done.commit
    assert not [path for path in (Path(graph.uri) / "__staging").glob("*/**/*") if path.is_file()]
    assert graph.snapshot(branch).blob("Doc", "d09", "body").read() == b"x" * 9


@pytest.mark.usefixtures("few")
def test_edges_are_updated_like_nodes(graph: Graph, branch: str) -> None:
    done = _update(graph, branch, 'update Cites set { weight: null } where to = "d00"')
    assert done.affected_edges == MANY
    assert {(row["dst"], row["weight"]) for row in _rows(graph, branch, "Cites")} == {("d00", None)}


@pytest.mark.usefixtures("few")
def test_rules_hold_for_many_rows(graph: Graph, branch: str) -> None:
    before = _rows(graph, branch, "Doc")
    for text, reason in {
        'update Doc set { tag: "same" } where n >= 0': "@unique violation on Doc.tag: value 'same'",
        "update Doc set { n: 200 } where n >= 0": "@range violation on Doc.n: value 200",
    }.items():
        with pytest.raises(ConstraintViolation, match=reason):
            _update(graph, branch, text)
    with pytest.raises(InvalidValue):
        _update(graph, branch, "update Doc set { n: 5000000000 } where n >= 0")
    _update(graph, branch, 'update Doc set { kind: "a" } where n >= 0')
    with pytest.raises(ConstraintViolation, match=r"@unique violation on Doc.\(kind, n\)"):
        _update(graph, branch, "update Doc set { n: 3 } where n >= 0")
    _update(graph, branch, "update Doc set { tag: null, n: null } where n >= 0")
    assert [row["k"] for row in _rows(graph, branch, "Doc")] == [row["k"] for row in before]


@pytest.mark.usefixtures("few")
def test_such_an_update_is_alone_with_its_type(graph: Graph, branch: str) -> None:
    every = 'update Doc set { kind: "b" } where n >= 0'
    for text in (
        f'insert Doc {{ k: "new" }} {every}',
        f'{every} insert Doc {{ k: "new" }}',
        f"{every} {every}",
    ):
        with pytest.raises(ResourceLimitExceeded) as refused:
            _update(graph, branch, text)
        assert "in a query of its own" in str(refused.value.remedy)
    done = _update(graph, branch, f'{every} insert Cites {{ from: "d01", to: "d02" }}')
    assert (done.affected_nodes, done.affected_edges) == (MANY, 1)


def test_a_setting_limits_what_an_update_matches(
    graph: Graph, branch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(pending_rows.UPDATE_SETTING, str(LIMIT))
    with pytest.raises(ResourceLimitExceeded) as refused:
        _update(graph, branch, 'update Doc set { kind: "b" } where n >= 0')
    assert (refused.value.actual, refused.value.limit) == (MANY, LIMIT)
    assert _update(graph, branch, f'update Doc set {{ kind: "b" }} where n < {LIMIT}').affected_nodes == LIMIT


@pytest.mark.usefixtures("few")
def test_a_rival_is_a_conflict_or_a_retry(graph: Graph, branch: str) -> None:
    text = 'query q() { update Doc set { kind: "b" } where n >= 0 }'
    gate = failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE
    with omnigraph.open(graph.uri) as rival:

        def be_faster() -> None:
            rival.mutate('query q() { insert Doc { k: "rival", n: 90 } }', branch=branch)

        with failpoints.arm(gate, failpoints.once(be_faster)), pytest.raises(TableVersionConflict):
            graph.mutate(text, branch=branch)
        with failpoints.arm(gate, failpoints.once(be_faster)):
            assert graph.mutate(text, branch=branch, retry=1).affected_nodes == MANY + 1
    assert not [path for path in (Path(graph.uri) / "__staging").glob("*/**/*") if path.is_file()]


_VALUES = {"n": ["null", "3", "200"], "kind": ["null", '"a"'], "tag": ["null", '"t1"'], "body": ["null"]}
_UPDATES = st.dictionaries(st.sampled_from(list(_VALUES)), st.integers(0, 2), min_size=1)
_WHERE = st.sampled_from(["n >= 2", "n < 20", "n != 4", 'tag != "t9"', 'k >= "d10"'])


@settings(
    max_examples=max(25, EXAMPLES // 10),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(assigned=_UPDATES, where=_WHERE)
def test_an_update_in_files_is_an_update_in_memory(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, assigned: dict[str, int], where: str
) -> None:
    values = ", ".join(f"{name}: {(_VALUES[name] * 3)[at]}" for name, at in assigned.items())
    found = []
    for rows in (LIMIT, 8192):
        monkeypatch.setenv(pending_rows.ROWS_SETTING, str(rows))
        graph.branches.create("trial")
        try:
            done: Any = _update(graph, "trial", f"update Doc set {{ {values} }} where {where}").tables
        except ConstraintViolation as wrong:
            done = wrong.constraint, wrong.type_name
        found.append((done, _rows(graph, "trial", "Doc")))
        graph.branches.delete("trial")
    assert found[0] == found[1]
