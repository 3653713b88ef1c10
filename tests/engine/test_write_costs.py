"""What one warm write stores and asks for, counted: in a folder by its files, in a bucket by its requests.

`write_costs/` holds the counts; `OMNIGRAPH_UPDATE_GOLDEN=1` writes those of this run.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.upkeep.manifest_upkeep import FRAGMENT_LIMIT
from omnigraph.engine.write.mutate import mutate
from omnigraph.engine.write.transaction import Author
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.storage import upsert as upserting
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests.engine.mutations import run_mutation
from tests.storage.conftest import ask_s3, s3_server, use_s3

SCHEMA = "node Person { handle: String @key }\nnode Log { msg: String }\n"
ONE = 'insert Log { msg: "a" }'
TWO = 'insert Log { msg: "a" }  insert Person { handle: "p" }'
GROUP = " ".join(f'insert Person {{ handle: "{name}" }}' for name in "abc")
ANN = 'insert Person { handle: "a" }'
PUTS = {"write_text", "write_text_if_absent", "write_text_if_match"}
WRITES = pytest.mark.parametrize(("text", "tables"), [(ONE, 1), (TWO, 2)], ids=["one-table", "two-tables"])

GOLDEN = Path(__file__).with_name("write_costs")
UPDATE = bool(os.environ.get("OMNIGRAPH_UPDATE_GOLDEN"))


class Warm:
    """A graph that has been written to before."""

    def __init__(self, at: Location, *, new: bool = True) -> None:
        self.at = at
        self.recorder = Recorder()
        if new:
            create_graph(Root.at(at), SCHEMA)
        self.graph = OpenGraph.open(Root.at(at, self.recorder))
        self._compiled = {text: self._compile(text) for text in (ONE, TWO, GROUP, ANN)}
        for text in (GROUP, TWO, TWO, TWO) if new else (ANN,):
            self.write(text)

    def write(self, text: str) -> Counter[str]:
        """The calls of our own that a write makes."""
        self.recorder.clear()
        mutate(self.graph, self._compiled[text], {}, Author("main"))
        return self.recorder.counts()

    def write_as_text(self, text: str) -> None:
        """Write as `graph.mutate` does, by statements that are compiled for the schema of that moment."""
        self.recorder.clear()
        run_mutation(self.graph, text, Author("main"))

    def _compile(self, text: str) -> CompiledMutation:
        compiled = compile_query(f"query q() {{ {text} }}", self.graph.schema().catalog)
        assert isinstance(compiled, CompiledMutation)
        return compiled


def part_of(path: str) -> str:
    """What an object is about, whatever it is called: `table/data`, `__recovery`."""
    top, *below = path.split("/")
    if top in ("nodes", "edges"):
        return f"table/{below[1]}"
    return f"{top}/{below[0]}" if top == "__manifest" else top


def require_golden(name: str, found: Counter[str]) -> None:
    """The counts are those on record; a rise and a fall are distinguished."""
    at = GOLDEN / f"{name}.txt"
    if UPDATE:
        at.write_text("".join(f"{what}: {count}\n" for what, count in sorted(found.items())))
    lines = (line.rpartition(": ") for line in at.read_text().splitlines())
    recorded = Counter({what: int(count) for what, _, count in lines})
    assert found - recorded == Counter(), "the write costs more than recorded"
    assert found == recorded, "the write became cheaper: record it with OMNIGRAPH_UPDATE_GOLDEN=1"


# --- in a folder ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Warm:
    return Warm(Location.parse(tmp_path_factory.mktemp("costs") / "g"))


def files(warm: Warm) -> set[str]:
    root = warm.at.path
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


@WRITES
def test_a_write_in_a_folder_puts_few_objects_and_deletes_one(
    warm: Warm, text: str, tables: int, request: pytest.FixtureRequest
) -> None:
    before = files(warm)
    calls = warm.write(text)
    left = Counter(f"new file {part_of(path)}" for path in files(warm) - before)
    records = sum(calls[op] for op in PUTS)
    assert records == 1, "the record of the operation; the table proves that it is complete"
    assert left.total() + records <= 5 + 4 * tables
    assert calls["delete"] == 1
    assert calls["list_dir"] == 2, "only the records of writes under way are listed"
    require_golden(f"folder-{request.node.callspec.id}", left + calls)


def test_a_row_of_a_large_table_is_replaced_in_two_versions_and_two_files_more(
    warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upserting, "_LARGE", 1)
    before = files(warm)
    calls = warm.write(ANN)
    left = Counter(f"new file {part_of(path)}" for path in files(warm) - before)
    assert left["new file table/_deletions"] == 1, "the fragment that had the row has others"
    assert left.total() + sum(calls[op] for op in PUTS) <= 5 + 4 * 1 + 2
    assert calls["delete"] == 1
    require_golden("folder-large-table", left + calls)


@WRITES
def test_a_write_touches_each_table_and_the_manifest_once(warm: Warm, text: str, tables: int) -> None:
    calls = warm.write(text)
    assert calls["commit"] == tables
    assert calls["merge_rows"] == 1


def test_a_mutation_reads_the_schema_once_and_its_hash_again_under_the_lock(warm: Warm) -> None:
    warm.write_as_text(ONE)
    read = Counter(call.uri.rpartition("/")[2] for call in warm.recorder.calls if "schema" in call.uri)
    assert read == {"_schema.pg": 1, "_schema.ir.json": 1, "__schema_state.json": 2}


def test_costs_do_not_grow_with_history(warm: Warm) -> None:
    first = warm.write(ONE)
    for _ in range(10):
        warm.write(ONE)
    assert warm.write(ONE) == first


# --- in a bucket ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def warm_bucket() -> Iterator[Warm]:
    """A server of its own: no other requests are counted."""
    with pytest.MonkeyPatch.context() as patch, s3_server() as endpoint:
        yield Warm(use_s3(endpoint, patch))


def requests_of(warm: Warm, text: str) -> Counter[str]:
    """The requests of a write, Lance's own included, but for what it reads of tables."""
    ask_s3("record")
    warm.write(text)
    asked = (_request(warm.at, *one) for one in ask_s3("requests"))
    return Counter(one for one in asked if not one.startswith(("GET table", "GET __manifest")))


def _request(at: Location, method: str, path: str, query: str) -> str:
    """A request as method and part; a listing and a removal are asked for with other methods."""
    options = parse_qs(query, keep_blank_values=True)
    if "list-type" in options:
        return f"LIST {part_of(options['prefix'][0].removeprefix(at.key + '/').rstrip('/'))}"
    if method == "POST" and "delete" in options:
        return "DELETE"
    return f"{method} {part_of(path.removeprefix(f'/{at.bucket}/{at.key}/'))}"


def total(found: Counter[str], method: str) -> int:
    return sum(count for what, count in found.items() if what.partition(" ")[0] == method)


@pytest.mark.s3
@WRITES
def test_a_write_in_a_bucket_puts_few_objects_deletes_one_and_lists_no_data(
    warm_bucket: Warm, text: str, tables: int, request: pytest.FixtureRequest
) -> None:
    found = requests_of(warm_bucket, text)
    assert total(found, "PUT") <= 7 + 4 * tables
    assert total(found, "DELETE") == 1
    assert found["LIST __recovery"] == 1
    lists = {what for what in found if what.startswith("LIST")}
    assert lists == {"LIST __recovery", "LIST __manifest/_versions", "LIST table/_versions"}
    assert found["LIST table/_versions"] == tables, "one in each commit of Lance; nothing else lists a table"
    require_golden(f"s3-{request.node.callspec.id}", found)


@pytest.mark.s3
def test_a_mutation_in_a_bucket_makes_the_requests_of_its_write_and_no_others(warm_bucket: Warm) -> None:
    ask_s3("record")
    warm_bucket.write_as_text(ONE)
    found = Counter(_request(warm_bucket.at, *one) for one in ask_s3("requests"))
    assert found.total() == 18
    ask_s3("record")
    warm_bucket.write(ONE)
    assert found == Counter(_request(warm_bucket.at, *one) for one in ask_s3("requests"))


@pytest.mark.s3
def test_requests_do_not_grow_with_history(warm_bucket: Warm) -> None:
    first = requests_of(warm_bucket, ONE)
    for _ in range(5):
        warm_bucket.write(ONE)
    assert requests_of(warm_bucket, ONE) == first


class Cycle:
    """What keyed inserts ask for, one after another: as many as there are until the manifest is compacted."""

    def __init__(self, warm: Warm) -> None:
        self.plain: set[int] = set()
        """All requests of a write that neither compacts nor follows on one that does."""
        self.most: Counter[str] = Counter()
        compacts = 0
        follows = True  # the first one may meet what the writes before it left
        for _ in range(FRAGMENT_LIMIT):
            ask_s3("record")
            is_compacting = warm.write(ANN)["commit_compaction"] > 0
            found = Counter(_request(warm.at, *one) for one in ask_s3("requests"))
            calls = warm.recorder.calls
            opened = [call for call in calls if call.op == "open" and "__manifest" not in call.uri]
            self.most |= Counter({"tables opened": len(opened), "all": found.total()})
            if not is_compacting and not follows:
                self.plain.add(found.total())
                self.most |= Counter({"reads of the manifest": found["GET __manifest/data"]})
            compacts += is_compacting
            follows = is_compacting
        assert compacts == 1, "one of these inserts compacts the manifest"


def with_history(folder: Warm, commits: int, bucket: str) -> Warm:
    """The graph once it has so many commits, in a bucket: they are made in a folder, where they cost less."""
    while len(folder.graph.load(MAIN).state.commits) < commits:
        folder.write(ANN)
    at = Location.parse(f"s3://{bucket}/after-{commits}")
    assert ask_s3("fill", folder=str(folder.at.path), bucket=at.bucket, prefix=at.key) > commits
    return Warm(at, new=False)


@pytest.mark.s3
def test_requests_of_a_write_are_the_same_after_two_hundred_others(
    folder: Location, warm_bucket: Warm
) -> None:
    local = Warm(folder)
    young = Cycle(with_history(local, 20, warm_bucket.at.bucket))
    old = Cycle(with_history(local, 220, warm_bucket.at.bucket))
    assert young.plain == old.plain == {20}
    for found in (young.most, old.most):
        assert found["reads of the manifest"] == 0
        assert found["tables opened"] <= 1
        assert found["all"] <= 80, "with the compaction that falls to one of them"


def test_every_golden_file_belongs_to_a_write() -> None:
    names = {f"{where}-{tables}" for where in ("folder", "s3") for tables in ("one-table", "two-tables")}
    assert {file.stem for file in GOLDEN.iterdir()} == names | {"folder-large-table"}
