"""A load checked in memory and one checked through files, in pieces of any size, come out the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph import failpoints
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.load import id_files, loader, replaced_rows, small_load, staging
from omnigraph.engine.load.checks import id_checks, quick_checks
from omnigraph.engine.load.large_load import LargeLoad
from omnigraph.engine.load.loader import load
from omnigraph.engine.load.request import LoadRequest, LoadResult
from omnigraph.engine.load.sources import item_reader, plan
from omnigraph.engine.rows.ids import LoadIds
from omnigraph.engine.rows.violations import MAX_REPORTED_VIOLATIONS
from omnigraph.engine.tasks.buckets import Hashes, hash_keys
from omnigraph.engine.tasks.runner import Engine, LocalRunner
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import KeyConflict, LoadRejected
from tests.examples import EXAMPLES

SCHEMA = """
node Person {
  slug: String @key
  email: String? @unique
  age: I32?
}
node City {
  name: String? @unique
}
edge Knows: Person -> Person @card(0..2) { since: I32? }
edge Lives: Person -> City @card(0..1) { weight: F64? }
edge Twin: City -> City { }
"""
CITIES = ("0", "17", "c2", "c3", "04")
"""Numbers have marks, other ids have none."""
STORED = [
    *({"type": "Person", "data": {"slug": f"p{at}", "email": f"e{at}"}} for at in range(3)),
    {"type": "Person", "data": {"slug": "p3"}},
    *({"type": "City", "data": {"id": CITIES[at], "name": f"n{at}"}} for at in range(3)),
    {"edge": "Knows", "from": "p0", "to": "p1", "data": {"id": "k0"}},
    {"edge": "Knows", "from": "p1", "to": "p2", "data": {"id": "k1"}},
    {"edge": "Lives", "from": "p1", "to": CITIES[2], "data": {"id": "l1"}},
    {"edge": "Twin", "from": CITIES[0], "to": CITIES[1], "data": {"id": "t0"}},
]
TYPES = ("Person", "City", "Knows", "Lives", "Twin")

NEW = [{"type": "Person", "data": {"slug": "p9"}}]
_HERE = Engine(LocalRunner(), "asked for")

people = st.integers(0, 5).map("p{}".format)
cities = st.sampled_from(CITIES[:4])


def _id(letter: str) -> st.SearchStrategy[dict[str, str]]:
    return st.one_of(st.just({}), st.integers(0, 4).map(lambda at: {"id": f"{letter}{at}"}))


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    match draw(st.sampled_from(["person", "person", "city", "knows", "lives", "twin"])):
        case "person":
            emails: list[dict[str, Any]] = [{}, {"email": None}, *({"email": f"e{at}"} for at in range(5))]
            ages: list[dict[str, Any]] = [{}, {}, {}, {"age": 7}, {"age": "old"}]
            email, age = draw(st.sampled_from(emails)), draw(st.sampled_from(ages))
            return {"type": "Person", "data": {"slug": draw(people), **email, **age}}
        case "city":
            name = st.sampled_from([{}, *({"name": f"n{at}"} for at in range(4))])
            ids: list[dict[str, str]] = [{}, *({"id": id_} for id_ in CITIES)]
            return {"type": "City", "data": {**draw(st.sampled_from(ids)), **draw(name)}}
        case "knows":
            ends = {"from": draw(people), "to": draw(people)}
            # A patch may omit the ends of edges; in other modes that is a mistake of the record.
            return {"edge": "Knows", **draw(st.sampled_from([ends, ends, ends, {}])), "data": draw(_id("k"))}
        case "lives":
            return {"edge": "Lives", "from": draw(people), "to": draw(cities), "data": draw(_id("l"))}
        case _:
            return {"edge": "Twin", "from": draw(cities), "to": draw(cities), "data": draw(_id("t"))}


def _write_records(folder: Path, name: str, rows: Sequence[dict[str, Any]]) -> Path:
    at = folder / name
    at.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return at


def _rows(uri: str) -> dict[str, list[dict[str, Any]]]:
    with omnigraph.open(uri) as graph:
        now = graph.snapshot()
        return {name: now.rows(name).sort_by("id").to_pylist() for name in TYPES}


def _one_hash(keys: pa.Array) -> Hashes:
    return np.zeros(len(keys), np.uint64)


def _summarize(done: LoadResult) -> tuple[Any, ...]:
    # Rows that break several rules at once are reported in the order in which the rules are checked.
    skipped = sorted(str(one) for one in done.skipped) if len(done.skipped) < MAX_REPORTED_VIOLATIONS else []
    return dict(done.nodes), dict(done.edges), skipped, dict(done.skipped_counts), done.commit is None


@pytest.fixture(scope="module")
def stored_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with some rows, to be copied."""
    folder = tmp_path_factory.mktemp("stored")
    with omnigraph.init(folder / "graph", schema=SCHEMA) as graph:
        graph.load(_write_records(folder, "first.jsonl", STORED), mode="append")
    return folder / "graph"


def _outcome(stored_path: Path, uri: Path, request: LoadRequest, engine: Engine | None) -> tuple[Any, Any]:
    shutil.copytree(stored_path, uri)
    with omnigraph.open(uri) as graph:
        opened = graph._writing()
        try:
            outcome: Any = _summarize(load(opened, request, Author("main"), engine=lambda _: engine))
        except (LoadRejected, KeyConflict) as refused:
            violations = [str(one) for one in refused.violations]
            outcome = type(refused).__name__, violations, refused.total, refused.counts
        if request.rejects is not None:
            found = request.rejects.read_text().splitlines()
            least = outcome[2] if len(outcome) == 4 else sum(outcome[3].values())
            # What was left out before the load was refused is there as well.
            assert len(found) >= least if request.skip_bad else len(found) == least
            outcome += (sorted(found),)
        assert not list((uri / "__staging").glob("*")) if (uri / "__staging").exists() else True
    return outcome, _rows(str(uri))


@settings(
    max_examples=max(25, EXAMPLES // 10),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a smaller example is found by hand as fast
)
@given(
    parts=st.lists(st.lists(records(), max_size=12), min_size=1, max_size=4),
    mode=st.sampled_from(list(Mode)),
    skip_bad=st.booleans(),
    split=st.sampled_from([1, 100, 1 << 20]),
    buckets=st.sampled_from([1, 8]),
    worth=st.sampled_from([0, 1 << 20]),
    doubtful=st.sampled_from([0, 1, 2]),
    texts=st.sampled_from([0, 1024]),
    limit=st.sampled_from([2, 100]),
    kept=st.booleans(),
    together=st.booleans(),
)
def test_a_load_through_files_is_a_load_in_memory(
    stored_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[list[dict[str, Any]]],
    mode: Mode,
    skip_bad: bool,
    split: int,
    buckets: int,
    worth: int,
    doubtful: int,
    texts: int,
    limit: int,
    kept: bool,
    together: bool,
) -> None:
    folder = tmp_path_factory.mktemp("both")
    files = tuple(_write_records(folder, f"more-{at}.jsonl", rows) for at, rows in enumerate(parts))
    request = LoadRequest(files, mode, skip_bad, folder / "rejects" if kept else None)
    with (
        patch.object(loader, "LoadIds", lambda _: LoadIds(1_700_000_000_000, 5)),
        patch.object(loader, "MAX_REPORTED_VIOLATIONS", limit),
        patch.object(small_load, "MAX_REPORTED_VIOLATIONS", limit),
        patch.object(staging, "AT_ONCE", 2),
        patch.object(plan, "SMALLEST", split),
        patch.object(plan, "LARGEST", split),
        # Keys are divided into as many parts as there are cores.
        patch.object(LocalRunner, "cores", buckets),
        # Stored rows are found by tasks, or at the door.
        patch.object(replaced_rows, "WORTH", worth),
        # A first look shows little when ids share their hashes, and nothing when too many do.
        patch.object(staging, "hash_keys", _one_hash if doubtful else hash_keys),
        patch.object(quick_checks, "hash_keys", _one_hash if doubtful else hash_keys),
        patch.object(id_checks, "hash_keys", _one_hash if doubtful else hash_keys),
        patch.object(quick_checks, "_SHARED_HELD", 0 if doubtful > 1 else 1 << 20),
        # Without marks, and with marks that are of no use when too many nodes are missing.
        patch.object(id_files, "_FEW_TEXTS", texts),
        patch.object(quick_checks, "_ABSENT_HELD", 0 if doubtful > 1 else 1 << 20),
        patch.object(quick_checks, "_NODES_HELD", 0 if doubtful else 1 << 20),
    ):
        # Files are read one by one, or several small ones as one text.
        with nullcontext() if together else patch.object(item_reader, "SMALL", 0):
            small = _outcome(stored_path, folder / "small", request, None)
        large = _outcome(stored_path, folder / "large", request, Engine(LocalRunner(), "asked for"))
    assert large == small


def test_a_load_that_makes_its_branch_is_checked_once(stored_path: Path, tmp_path: Path) -> None:
    shutil.copytree(stored_path, tmp_path / "graph")
    request = LoadRequest((_write_records(tmp_path, "more.jsonl", NEW),), Mode.APPEND)
    with omnigraph.open(tmp_path / "graph") as graph:
        done = load(graph._writing(), request, Author("work"), from_="main", engine=lambda _: _HERE)
        assert done.branch_created
        assert done.engine is not None
        assert [stage.name for stage in done.engine.stages] == ["read", "check", "arrange"]
        assert "p9" in graph.snapshot("work").rows("Person").column("slug").to_pylist()


def test_a_load_that_makes_its_branch_is_checked_again_when_somebody_is_faster(
    stored_path: Path, tmp_path: Path
) -> None:
    shutil.copytree(stored_path, tmp_path / "graph")
    more = _write_records(tmp_path, "more.jsonl", NEW)
    request = LoadRequest((more,), Mode.APPEND)
    gate = failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE
    with omnigraph.open(tmp_path / "graph") as graph, omnigraph.open(tmp_path / "graph") as rival:
        faster = failpoints.once(lambda: rival.load(more, mode="append", branch="work"))
        with failpoints.arm(gate, faster), pytest.raises(KeyConflict, match="p9"):
            load(graph._writing(), request, Author("work"), from_="main", engine=lambda _: _HERE)
        assert graph.snapshot("work").rows("Person").column("slug").to_pylist().count("p9") == 1


@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.MERGE])
def test_a_load_that_was_overtaken_is_checked_and_staged_once_more(
    stored_path: Path, tmp_path: Path, mode: Mode
) -> None:
    shutil.copytree(stored_path, tmp_path / "graph")
    request = LoadRequest((_write_records(tmp_path, "more.jsonl", NEW),), mode)
    gate = failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE
    with omnigraph.open(tmp_path / "graph") as graph, omnigraph.open(tmp_path / "graph") as rival:
        faster = failpoints.once(lambda: rival.mutate('query q() { insert Person { slug: "rival" } }'))
        with failpoints.arm(gate, faster):
            done = load(graph._writing(), request, Author("main"), engine=lambda _: _HERE)
        slugs = graph.snapshot().rows("Person").column("slug").to_pylist()
        assert done.commit is not None
        assert (slugs.count("p9"), slugs.count("rival")) == (1, 1)


@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.MERGE])
def test_a_load_is_checked_again_on_a_branch_that_was_recreated(
    stored_path: Path, tmp_path: Path, mode: Mode
) -> None:
    """The branch has as many rows as before by then, in tables of the same versions."""
    shutil.copytree(stored_path, tmp_path / "graph")
    old, new = ([{"type": "Person", "data": {"slug": slug}}] for slug in ("p8", "p9"))
    request = LoadRequest((_write_records(tmp_path, "more.jsonl", new),), mode)
    gate = failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE
    with omnigraph.open(tmp_path / "graph") as graph, omnigraph.open(tmp_path / "graph") as rival:

        def make(rows: list[dict[str, Any]]) -> None:
            rival.branches.create("work")
            rival.load(_write_records(tmp_path, "first.jsonl", rows), mode="append", branch="work")

        def recreate() -> None:
            rival.branches.delete("work")
            make(new)

        make(old)
        refused = pytest.raises(KeyConflict, match="p9") if mode is Mode.APPEND else nullcontext()
        with (
            failpoints.arm(gate, failpoints.once(recreate)),
            patch.object(replaced_rows, "WORTH", 0),
            refused,
        ):
            load(graph._writing(), request, Author("work"), engine=lambda _: _HERE)
        slugs = graph.snapshot("work").rows("Person").column("slug").to_pylist()
        assert sorted(slugs) == ["p0", "p1", "p2", "p3", "p9"]


def test_the_rows_of_a_bucket_wait_in_files_when_they_are_many(tmp_path: Path) -> None:
    rows = pa.table({"key": [f"k{at % 50}" for at in range(1000)], "at": list(range(1000))})

    def emitted(item: int) -> Any:
        from omnigraph.engine.tasks.runner import KeyedRows

        yield KeyedRows("rows", rows.slice(item * 100, 100), "key")

    def reduced(found: Any) -> list[tuple[str, int]]:
        counted = found["rows"].group_by("key").aggregate([([], "count_all")])
        return list(zip(counted["key"].to_pylist(), counted["count_all"].to_pylist(), strict=True))

    def run_with(limit: int) -> list[tuple[str, int]]:
        with patch("omnigraph.engine.tasks.runner.HELD_IN_MEMORY", limit):
            found = LocalRunner().grouped("count", range(10), emitted, reduced, 7)
            return sorted(pair for part in found for pair in part)

    assert run_with(1000) == run_with(1 << 30) == sorted((f"k{at}", 20) for at in range(50))


def test_many_small_files_are_few_tasks_and_few_staged_files(tmp_path: Path) -> None:
    folder, count = tmp_path / "many", 300
    folder.mkdir()
    for at in range(count):
        _write_records(folder, f"{at:04}.jsonl", [{"type": "City", "data": {"name": f"n{at}"}}])
    staged: list[int] = []

    def count_staged(*_: Any) -> None:
        staged.append(sum(1 for at in (tmp_path / "graph/__staging").rglob("*") if at.is_file()))

    with omnigraph.init(tmp_path / "graph", schema=SCHEMA) as graph:
        with patch.object(LargeLoad, "_build_effects", _after(count_staged, LargeLoad._build_effects)):
            done = load(
                graph._writing(), LoadRequest((folder,), Mode.APPEND), Author("main"), engine=lambda _: _HERE
            )
        assert graph.snapshot().rows("City").num_rows == count
        names = graph.snapshot().rows("City").sort_by("id").column("name").to_pylist()
    assert names == [f"n{at}" for at in range(count)], "generated ids sort by file"
    assert done.engine is not None
    assert done.engine.stages[0].tasks <= 4
    assert staged[0] < 30


def _after(first: Any, then: Any) -> Any:
    def both(*given: Any) -> Any:
        first()
        return then(*given)

    return both


@pytest.mark.parametrize("engine", [None, _HERE])
@pytest.mark.parametrize("skip_bad", [False, True])
def test_problems_in_small_files_read_together_name_the_file_and_its_line(
    tmp_path: Path, engine: Engine | None, skip_bad: bool
) -> None:
    texts = {
        "a.jsonl": '{"type": "Person", "data": {"slug": "p0"}}',  # no line end
        "b.jsonl": "",
        "c.jsonl": '\n{"type": "Person", "data": {"slug": "p1"}}\n{"type": "Persn"}\n',
        "d.jsonl": '{"type": "Person", "data": {"slug": "p2", "age": "old"}}\n\n\n',
        "e.jsonl": '{"type": "Person", "data": {"slug": "p3"}}\n{"type": "Person", "data": {"slug": "p0"}}\n',
        "f.jsonl": '{"edge": "Knows", "from": "p0", "to": "p9"}\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    request = LoadRequest((tmp_path / "*.jsonl",), Mode.APPEND, skip_bad)
    with omnigraph.init(tmp_path / "graph", schema=SCHEMA) as graph:
        if not skip_bad:
            with pytest.raises(LoadRejected) as refused:
                load(graph._writing(), request, Author("main"), engine=lambda _: engine)
            found = refused.value.violations
        else:
            found = load(graph._writing(), request, Author("main"), engine=lambda _: engine).skipped
            assert graph.snapshot().rows("Person").column("slug").to_pylist() == ["p0", "p1", "p3"]
    places = [(Path(one.file or "").name, one.line) for one in found]
    alone = [("c.jsonl", 3), ("d.jsonl", 1)]
    assert places == ([*alone, ("e.jsonl", 2), ("f.jsonl", 1)] if skip_bad else alone)
    assert found[0].reason == "line 3: unknown node type 'Persn'"
