"""What mutations and loads do to a stored graph, as the case files beside this one say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph, LoadResult, MutationResult, errors
from omnigraph.storage.location import Location
from omnigraph.storage.tables import Tables
from tests.lang.casefile import CASES as LANGUAGE_CASES
from tests.lang.casefile import Case, read_cases

FOLDER = Path(__file__).parent / "cases"
CASES = [case for path in sorted(FOLDER.glob("*.wt")) for case in read_cases(path)]


@pytest.fixture(scope="session")
def fixture_f(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph F, for tests to copy."""
    place = tmp_path_factory.mktemp("F") / "g.omni"
    with og.init(place, schema=LANGUAGE_CASES / "F.pg") as graph:
        graph.load(FOLDER / "F.jsonl", mode="append", actor="fixture")
    return place


@pytest.fixture
def graph_of(fixture_f: Path, tmp_path: Path) -> Callable[[str | None], Graph]:
    """A graph of one's own: F, or an empty one with another schema."""

    def make(schema: str | None = None) -> Graph:
        place = tmp_path / "g.omni"
        if schema is not None:
            return og.init(place, schema=schema)
        shutil.copytree(fixture_f, place)
        return og.open(place)

    return make


def plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date | datetime) else value


@dataclass
class Run:
    """A graph on its way through a case."""

    graph: Graph
    folder: Path
    params: dict[str, Any] = field(default_factory=dict)
    outcome: MutationResult | LoadResult | errors.OmnigraphError | None = None
    before: tuple[str, list[Any], list[int]] = ("", [], [])

    def state(self) -> tuple[str, list[Any], list[int]]:
        """The head, the rows, and where the tables themselves stand, published or not."""
        snapshot = self.graph.snapshot()
        rows = [snapshot.rows(key).to_pylist() for key in snapshot.tables]
        places = [Location.parse(Path(self.graph.uri, table.path)) for table in snapshot.tables.values()]
        return snapshot.id, rows, [Tables().tip(place).version for place in places]

    def rows(self, type_name: str) -> dict[str, dict[str, Any]]:
        return {row["id"]: row for row in self.graph.snapshot().rows(type_name).to_pylist()}

    def act(self, step: Callable[[], MutationResult | LoadResult]) -> None:
        self.raise_unexpected()
        self.before = self.state()
        try:
            self.outcome = step()
        except errors.OmnigraphError as error:
            self.outcome = error

    def raise_unexpected(self) -> None:
        """A step with an unexpected error is a failure of the case."""
        if isinstance(self.outcome, errors.OmnigraphError):
            raise self.outcome

    def section(self, name: str, text: str) -> None:
        word, _, rest = name.partition(" ")
        match word:
            case "params":
                self.params = json.loads(text)
            case "mutate":
                query = f"query q{rest or '()'} {{ {text} }}"
                self.act(lambda: self.graph.mutate(query, self.params))
            case "load" | "data":
                mode, _, skipping = (rest or "append").partition(" ")
                self.load(text, mode, bool(skipping))
            case "result":
                self.expect_result(text)
            case "error":
                self.expect_error(*text.split("\n", 2))
            case "row":
                type_name, entity = rest.split()
                self.expect_row(self.rows(type_name).get(entity), text)
            case "ids":
                assert sorted(self.rows(rest)) == text.split()
            case "count":
                assert len(self.rows(rest)) == int(text)
            case _:
                raise ValueError(f"a case cannot have a section '{name}'")

    def load(self, text: str, mode: Any, skipping: bool) -> None:
        file = self.folder / "input.jsonl"
        file.write_text(text, encoding="utf-8")
        self.act(lambda: self.graph.load(file, mode=mode, skip_bad=skipping))

    def expect_result(self, text: str) -> None:
        done = self.outcome
        self.raise_unexpected()
        head = self.graph.snapshot().commit
        assert head is not None
        if isinstance(done, MutationResult):
            assert f"{done.affected_nodes}/{done.affected_edges}" == text
            changed = text != "0/0"
        else:
            assert isinstance(done, LoadResult)
            lines = [f"{name} {count}" for kind in (done.nodes, done.edges) for name, count in kind.items()]
            lines += [f"skipped {len(done.skipped)}"] if done.skipped else []
            assert "\n".join(lines) == text
            changed = bool(text)
        assert done.commit == (head if changed else None)
        assert (head.parent if changed else head.id) == self.before[0]

    def expect_error(self, kind: str, message: str, data: str = "{}") -> None:
        error, self.outcome = self.outcome, None
        assert isinstance(error, errors.OmnigraphError), f"no error, but {error}"
        assert type(error).__name__ == kind
        assert message in error.message
        assert error.data() | json.loads(data) == error.data()
        assert self.state() == self.before

    def expect_row(self, row: dict[str, Any] | None, text: str) -> None:
        if text == "none":
            assert row is None
            return
        assert row is not None
        shown = {name: plain(value) for name, value in row.items()}
        assert shown | json.loads(text) == shown


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_write_does_what_its_case_says(
    case: Case, graph_of: Callable[[str | None], Graph], tmp_path: Path
) -> None:
    with graph_of(case.section("schema")) as graph:
        run = Run(graph, tmp_path)
        for name, text in case.sections:
            if name != "schema":
                run.section(name, text)
        run.raise_unexpected()


@pytest.mark.parametrize(("letter", "last"), [("M", 19), ("L", 13)])
def test_every_conformance_case_exists(letter: str, last: int) -> None:
    names = {case.name.split()[0] for case in CASES}
    assert {f"{letter}{number}" for number in range(1, last + 1)} <= names


def test_m20_a_query_writes_at_most_8192_rows_of_a_type(graph_of: Callable[[], Graph]) -> None:
    with graph_of() as graph:
        before = graph.snapshot().id
        with pytest.raises(errors.ResourceLimitExceeded) as caught:
            graph.mutate(log_inserts(8193))
        assert (caught.value.resource, caught.value.limit, caught.value.actual) == (
            "keyed entities for node:Log",
            8192,
            8193,
        )
        assert graph.snapshot().id == before
        done = graph.mutate(log_inserts(8192))
        assert done.affected_nodes == graph.snapshot().tables["node:Log"].rows == 8192


def log_inserts(count: int) -> str:
    statements = 'insert Log { msg: "a" } ' * count
    return f"query q() {{ {statements} }}"
