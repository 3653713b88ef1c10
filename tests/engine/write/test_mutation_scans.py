"""How a mutation looks for stored rows: by an index where there is one, and for no more than it may write."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.load.loader import load
from omnigraph.engine.load.request import LoadRequest
from omnigraph.engine.maintenance.ensure_indexes import ensure_indices
from omnigraph.engine.write.mutate import MutationResult, mutate
from omnigraph.engine.write.pending_rows import PendingLimits
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import ResourceLimitExceeded
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.storage.location import Location

MAIN = Author("main")
INDEXED = {
    "flag": ("Bool", "false", "true"),
    "small": ("I32", "1", "2"),
    "big": ("I64", "1", "2"),
    "less": ("U32", "1", "4000000000"),
    "more": ("U64", "1", "9000000000"),
    "half": ("F32", "1.5", "2.5"),
    "real": ("F64", "1.5", "2.5"),
    "day": ("Date", '"2024-01-01"', '"2024-01-02"'),
    "at": ("DateTime", '"2024-01-01T00:00:00Z"', '"2024-01-02T00:00:00Z"'),
    "level": ("enum(high, low)", '"high"', '"low"'),
}
"""A property of each kind that has an index: its type, the one value that is stored, and a greater one."""
LITERALS = {"day": "date", "at": "datetime"}
NO_MATCH = {"=": "greater", "!=": "stored", "<": "stored", ">=": "greater", "in": "greater"}
"""With which of the two values an operator finds no row, so that nothing is written."""
_PROPERTIES = " ".join(f"{name}: {type_}? @index" for name, (type_, _, _) in INDEXED.items())
SCHEMA = f"node N {{ k: String @key  plain: I32? {_PROPERTIES} }}\nedge E: N -> N {{ w: I32? @index }}"
_VALUES = ",".join(f'"{name}":{stored}' for name, (_, stored, _) in INDEXED.items())
ROWS = (
    f'{{"type":"N","data":{{"k":"a","plain":1,{_VALUES}}}}}\n'
    '{"type":"N","data":{"k":"b"}}\n'
    '{"edge":"E","from":"a","to":"b","data":{"w":1}}\n'
)


@dataclass(frozen=True)
class Scan:
    """A look at a table, as Lance was asked for it and as it does it."""

    asked: Mapping[str, Any]
    plan: str

    @property
    def by_index(self) -> bool:
        return "ScalarIndexQuery" in self.plan

    @property
    def reads_bytes(self) -> bool:
        return bool(self.asked["blob_handling"] == "all_binary")


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[Scan]:
    """Every look that Lance is asked for from here on."""
    found: list[Scan] = []
    scanner = lance.LanceDataset.scanner

    def noted(dataset: lance.LanceDataset, *given: Any, **asked: Any) -> lance.LanceScanner:
        made = scanner(dataset, *given, **asked)
        found.append(Scan(asked, made.explain_plan(verbose=True)))
        return made

    monkeypatch.setattr(lance.LanceDataset, "scanner", noted)
    return found


def change_graph(
    graph: OpenGraph, text: str, limits: PendingLimits | None = None, given: Mapping[str, str] | None = None
) -> MutationResult:
    parameters = ", ".join(f"${name}: Blob" for name in given or ())
    compiled = compile_query(f"query q({parameters}) {{ {text} }}", graph.schema().catalog)
    assert isinstance(compiled, CompiledMutation)
    return mutate(graph, compiled, dict(given or {}), MAIN, limits)


def make_graph(place: Path, schema: str, records: str) -> OpenGraph:
    root = Root.at(Location.parse(place / "g"))
    create_graph(root, schema)
    graph = OpenGraph.open(root)
    file = place / "rows.jsonl"
    file.write_text(records, encoding="utf-8")
    load(graph, LoadRequest((file,), Mode.APPEND), MAIN)
    return graph


# --- indexes -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def indexed_graph(tmp_path_factory: pytest.TempPathFactory) -> OpenGraph:
    """Two nodes and an edge, with all their indexes."""
    graph = make_graph(tmp_path_factory.mktemp("indexed"), SCHEMA, ROWS)
    assert set(ensure_indices(graph, MAIN).built["node:N"]) == {"id", *INDEXED}
    return graph


def condition(name: str, op: str) -> str:
    _, stored, greater = INDEXED[name]
    value = stored if NO_MATCH[op] == "stored" else greater
    value = f"{LITERALS[name]}({value})" if name in LITERALS else value
    return f"{name} in [{value}]" if op == "in" else f"{name} {op} {value}"


@pytest.mark.parametrize("name", INDEXED)
def test_the_rows_of_a_mutation_are_looked_for_in_the_index(
    indexed_graph: OpenGraph, scans: list[Scan], name: str
) -> None:
    for op in NO_MATCH:
        for statement in ("update N set { plain: 2 }", "delete N"):
            scans.clear()
            text = f"{statement} where {condition(name, op)}"
            assert change_graph(indexed_graph, text).commit is None
            assert [scan.by_index for scan in scans] == [True], text


@pytest.mark.parametrize(
    "text",
    [
        'update N set { plain: 2 } where k = "c"',
        'update N set { plain: 2 } where k in ["c", "d"]',
        'delete N where k = "c"',
        'delete E where from = "c"',
        'delete E where to in ["c", "d"]',
        "delete E where w = 2",
    ],
)
def test_keys_ends_and_properties_of_edges_are_looked_for_in_the_index(
    indexed_graph: OpenGraph, scans: list[Scan], text: str
) -> None:
    assert change_graph(indexed_graph, text).commit is None
    assert [scan.by_index for scan in scans] == [True]


def test_a_property_without_an_index_is_read(indexed_graph: OpenGraph, scans: list[Scan]) -> None:
    assert change_graph(indexed_graph, "delete N where plain = 2").commit is None
    assert [scan.by_index for scan in scans] == [False]


# --- no more than may be written -----------------------------------------------------------------

DOCS = "node Doc { k: String @key  n: I32?  text: String?  body: Blob?  other: Blob? }"
MANY, LIMIT = 40, 25
KILO = base64.b64encode(b"x" * 1000).decode()


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> OpenGraph:
    """Documents with a text of a thousand letters and two Blobs of as many bytes; no test changes them."""
    records = "".join(
        f'{{"type":"Doc","data":{{"k":"d{number:02}","n":{number},"text":"{"t" * 1000}",'
        f'"body":"base64:{KILO}","other":"base64:{KILO}"}}}}\n'
        for number in range(MANY)
    )
    return make_graph(tmp_path_factory.mktemp("documents"), DOCS, records)


def change_refused(graph: OpenGraph, text: str, limits: PendingLimits) -> tuple[str, int, int]:
    with pytest.raises(ResourceLimitExceeded) as caught:
        change_graph(graph, text, limits)
    return caught.value.resource, caught.value.actual, caught.value.limit


def test_an_update_of_too_many_rows_reads_few_of_them_and_no_blob(
    documents: OpenGraph, scans: list[Scan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lance.LanceDataset, "read_blobs", _none_read)
    resource = "keyed entities for node:Doc"
    every = "update Doc set { n: 1 } where n >= 0"
    limits = PendingLimits(rows=LIMIT, updated_rows=LIMIT)
    assert change_refused(documents, every, limits) == (resource, MANY, LIMIT)
    assert [(scan.asked["limit"], scan.reads_bytes) for scan in scans] == [(LIMIT + 1, False)]


def test_what_is_too_large_is_known_before_a_blob_is_read(
    documents: OpenGraph, scans: list[Scan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lance.LanceDataset, "read_blobs", _none_read)
    text = 'insert Doc { k: "new" } update Doc set { n: 1, text: null } where n >= 0'
    resource, actual, limit = change_refused(documents, text, PendingLimits(bytes=MANY * 1500))
    assert (resource, limit) == ("keyed entity bytes for node:Doc", MANY * 1500)
    assert actual >= MANY * 2000
    assert not any(scan.reads_bytes for scan in scans)


def _none_read(*given: object, **named: object) -> None:
    raise AssertionError("the bytes of Blobs are read")


def test_what_an_update_assigns_is_not_read(tmp_path: Path, scans: list[Scan]) -> None:
    graph = make_graph(
        tmp_path, DOCS, '{"type":"Doc","data":{"k":"a","n":1,"text":"t","other":"base64:YWI="}}\n'
    )
    scans.clear()
    text = 'update Doc set { text: "new", body: $b } where n = 1'
    assert change_graph(graph, text, given={"b": "base64:Yw=="}).affected_nodes == 1
    first = scans[0].asked
    assert sorted(first["columns"]) == ["id", "k", "n", "other"]
    row = open_table(graph, graph.snapshot(AtBranch()), "node:Doc").scan(blob_bytes=True).to_pylist()
    assert row == [{"id": "a", "k": "a", "n": 1, "text": "new", "body": b"c", "other": b"ab"}]


def test_rows_that_were_written_before_count_once_more_and_hide_stored_ones(documents: OpenGraph) -> None:
    first = 'insert Doc { k: "d00", n: 100 } insert Doc { k: "new", n: 100 } '
    every = first + "update Doc set { text: null } where n >= 0"
    # Two inserts, all stored documents but the hidden one, and the two inserted ones again.
    refusal = change_refused(documents, every, PendingLimits(rows=LIMIT))
    assert refusal == ("keyed entities for node:Doc", 2 + (MANY - 1) + 2, LIMIT)
    assert change_refused(documents, every, PendingLimits(rows=MANY + 2))[1] == MANY + 3
