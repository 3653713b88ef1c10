"""The Python API: what users hold, and what it answers when it is used wrongly."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.engine.graph.manifest import TableVersion
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location
from tests.storage.conftest import s3_endpoint, s3_root

__all__ = ["s3_endpoint", "s3_root"]

ROOT = Path(__file__).parents[1]
SCHEMA = "node Person { handle: String @key  age: I32? }\nedge Knows: Person -> Person\n"
UNKNOWN = "0" * 26


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as made:
        yield made


def commit(
    graph: og.Graph, branch: str = "main", *, actor: str | None = None, rows: int | None = None
) -> str:
    """Publish as another writer would: a commit, and a new version of Person when it has `rows`."""
    root = Root.at(Location.parse(graph.uri))
    opened = OpenGraph.open(root)
    owner = None if branch == "main" else branch
    with root.locks.hold([branch]):
        version = opened.load(branch).state.latest_version("node:Person") + 1
        changed = () if rows is None else (TableVersion("node:Person", version, owner, rows),)
        done = publish(
            opened.coordinator(branch), ManifestChanges(versions=changed), NewCommit(root.new_id(), actor)
        )
    return done.commit.id


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(at): at.read_bytes() for at in folder.rglob("*") if at.is_file()}


# --- making and opening --------------------------------------------------------------------------


def test_a_new_graph_has_its_schema_a_first_commit_and_main(graph: og.Graph, tmp_path: Path) -> None:
    assert graph.uri == str(tmp_path / "g.omni")
    assert set(graph.schema.nodes) == {"Person"}
    assert graph.schema_source == SCHEMA
    assert graph.branches.list() == ["main"]
    assert [(found.branch, found.parent) for found in graph.commits.list()] == [("main", None)]
    assert graph.format_version == 4
    assert not graph.read_only


def test_a_schema_can_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "s.pg").write_text(SCHEMA, encoding="utf-8")
    with og.init(tmp_path / "g", schema=tmp_path / "s.pg") as graph:
        assert graph.schema_source == SCHEMA


def test_a_mistake_in_a_schema_file_is_reported_with_its_name_and_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "s.pg").write_text("node Person {\n  handle: Strin\n}", encoding="utf-8")
    with pytest.raises(errors.ParseError, match=r"s\.pg:2:11"):
        og.init(tmp_path / "g", schema=tmp_path / "s.pg")
    assert not (tmp_path / "g").exists()


def test_the_name_of_a_file_as_schema_text_gets_advice(tmp_path: Path) -> None:
    with pytest.raises(errors.BadRequest) as caught:
        og.init(tmp_path / "g", schema="team.pg")
    assert "Path('team.pg')" in str(caught.value.remedy)


def test_a_missing_schema_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(errors.BadRequest, match=r"cannot read '.*nowhere\.pg'"):
        og.init(tmp_path / "g", schema=tmp_path / "nowhere.pg")


def test_a_second_init_is_refused_even_by_force(graph: og.Graph) -> None:
    for force in (False, True):
        with pytest.raises(errors.AlreadyInitialized):
            og.init(graph.uri, schema=SCHEMA, force=force)


def test_force_starts_over_where_an_initialisation_died(tmp_path: Path) -> None:
    place = tmp_path / "g"
    place.mkdir()
    (place / "_schema.pg").write_text(SCHEMA, encoding="utf-8")
    with pytest.raises(errors.GraphNotFound, match="did not finish"):
        og.open(place)
    with pytest.raises(errors.AlreadyInitialized):
        og.init(place, schema=SCHEMA)
    with og.init(place, schema=SCHEMA, force=True) as graph:
        assert len(graph.commits.list()) == 1


@pytest.mark.parametrize("form", ["path", "text", "file URL", "relative"])
def test_a_graph_opens_under_every_form_of_its_name(
    graph: og.Graph, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path(graph.uri)
    monkeypatch.chdir(place.parent)
    forms: dict[str, str | Path] = {
        "path": place,
        "text": str(place),
        "file URL": place.as_uri(),
        "relative": "./g.omni",
    }
    with og.open(forms[form]) as opened:
        assert opened.uri == graph.uri


def test_what_is_not_a_graph_is_reported_by_name(tmp_path: Path) -> None:
    with pytest.raises(errors.GraphNotFound, match=re.escape(str(tmp_path / "nothing"))):
        og.open(tmp_path / "nothing")
    with pytest.raises(errors.InvalidName, match="ftp"):
        og.open("ftp://host/graph")


@pytest.mark.s3
def test_a_bucket_holds_a_graph_like_a_folder(s3_root: Location) -> None:
    with og.init(s3_root.uri, schema=SCHEMA) as graph:
        graph.branches.create("work")
        own = commit(graph, "work", rows=2)
    with og.open(s3_root.uri, read_only=True) as graph:
        assert graph.uri == s3_root.uri
        assert list(graph.branches) == ["main", "work"]
        assert graph.at(commit=own).tables["node:Person"].rows == 2
        assert graph.at(time=graph.commits.get(own).time, branch="work").id == own


# --- closing -------------------------------------------------------------------------------------


def test_leaving_the_block_closes_the_graph(graph: og.Graph) -> None:
    with og.open(graph.uri) as opened:
        inside = opened.closed
    assert (inside, opened.closed) == (False, True)
    assert repr(opened) == f"<Graph '{graph.uri}' closed>"


@pytest.mark.parametrize(
    "use",
    [
        lambda graph: graph.schema,
        lambda graph: graph.schema_source,
        lambda graph: graph.format_version,
        lambda graph: graph.plan_schema(SCHEMA),
        lambda graph: graph.snapshot(),
        lambda graph: graph.at(version=1),
        lambda graph: graph.branches.list(),
        lambda graph: graph.branches.create("work"),
        lambda graph: graph.branches.delete("work"),
        lambda graph: graph.commits.list(),
        lambda graph: graph.commits.get(UNKNOWN),
        lambda graph: graph.commits.merge_base(UNKNOWN, UNKNOWN),
        lambda graph: graph.refresh(),
        lambda graph: graph.__enter__(),
    ],
)
def test_a_closed_graph_refuses_everything(graph: og.Graph, use: Any) -> None:
    graph.close()
    graph.close()
    with pytest.raises(errors.GraphClosed, match="is closed"):
        use(graph)


def test_a_snapshot_outlives_its_graph_but_for_what_was_not_read_yet(graph: og.Graph) -> None:
    read, unread = graph.snapshot(), graph.snapshot()
    assert read.schema.nodes
    graph.close()
    assert read.schema.nodes
    assert unread.tables
    with pytest.raises(errors.GraphClosed):
        unread.schema  # noqa: B018


# --- reading only --------------------------------------------------------------------------------


def test_a_graph_opened_for_reading_shows_everything_and_writes_nothing(graph: og.Graph) -> None:
    graph.branches.create("work")
    first = graph.snapshot().id
    before = files_of(Path(graph.uri))
    with og.open(graph.uri, read_only=True) as opened:
        assert opened.read_only
        assert opened.branches.list() == ["main", "work"]
        assert opened.commits.get(first).id == first
        assert opened.at(commit=first).schema == graph.schema
        assert opened.snapshot("work").tables.keys() == {"node:Person", "edge:Knows"}
        opened.refresh()
        for change in (opened.branches.create, opened.branches.delete):
            with pytest.raises(errors.ReadOnlyGraph, match="reading only"):
                change("work")
    assert files_of(Path(graph.uri)) == before


# --- branches ------------------------------------------------------------------------------------


def test_branches_are_made_listed_and_removed(graph: og.Graph) -> None:
    graph.branches.create("work")
    graph.branches.create("review/one", from_="work")
    assert list(graph.branches) == graph.branches.list() == ["main", "review/one", "work"]
    assert len(graph.branches) == 3
    assert "work" in graph.branches
    graph.branches.delete("review/one")
    assert "review/one" not in graph.branches


def test_a_branch_goes_its_own_way(graph: og.Graph) -> None:
    base = graph.snapshot().id
    graph.branches.create("work")
    own = commit(graph, "work", rows=3)
    assert [found.id for found in graph.commits.list("work")] == [own, base]
    assert [found.id for found in graph.commits.list()] == [base]
    table = graph.snapshot("work").tables["node:Person"]
    assert (table.branch, table.rows) == ("work", 3)
    assert graph.snapshot().tables["node:Person"].branch == "main"


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda branches: branches.create("main"), errors.OmnigraphError),
        (lambda branches: branches.create("../up"), errors.InvalidName),
        (lambda branches: branches.create("  "), errors.InvalidName),
        (lambda branches: branches.create("work"), errors.BranchExists),
        (lambda branches: branches.create("new", from_="nowhere"), errors.BranchNotFound),
        (lambda branches: branches.delete("nowhere"), errors.BranchNotFound),
        (lambda branches: branches.delete("main"), errors.OmnigraphError),
    ],
)
def test_wrong_use_of_branches_is_a_typed_error(
    graph: og.Graph, use: Any, expected: type[errors.OmnigraphError]
) -> None:
    graph.branches.create("work")
    with pytest.raises(expected):
        use(graph.branches)
    assert graph.branches.list() == ["main", "work"]


def test_a_branch_that_others_deleted_does_not_hide_commits_of_the_rest(graph: og.Graph) -> None:
    for name in ("gone", "kept"):
        graph.branches.create(name)
    kept = commit(graph, "kept")
    with og.open(graph.uri) as reader:
        reader.snapshot("gone")
        graph.branches.delete("gone")
        assert reader.commits.get(kept).branch == "kept"
        with pytest.raises(errors.CommitNotFound):
            reader.commits.get(UNKNOWN)
        with pytest.raises(errors.BranchNotFound, match="gone"):
            reader.snapshot("gone")


# --- commits -------------------------------------------------------------------------------------


def test_commits_are_listed_newest_first_by_actor_and_up_to_a_limit(graph: og.Graph) -> None:
    first = graph.snapshot().id
    ids = [commit(graph, actor=actor) for actor in ("ann", "bob", "ann")]
    assert [found.id for found in graph.commits] == [*reversed(ids), first]
    assert [found.id for found in graph.commits.list(actor="ann")] == [ids[2], ids[0]]
    assert [found.id for found in graph.commits.list(limit=2)] == [ids[2], ids[1]]
    assert [found.id for found in graph.commits.list(actor="ann", limit=1)] == [ids[2]]
    assert graph.commits.list(limit=0) == []
    with pytest.raises(errors.InvalidValue, match="-1"):
        graph.commits.list(limit=-1)
    with pytest.raises(errors.BranchNotFound, match="nowhere"):
        graph.commits.list("nowhere")


def test_a_commit_knows_its_time_to_the_microsecond(graph: og.Graph) -> None:
    found = graph.snapshot().commit
    assert found is not None
    assert found.time.tzinfo is UTC
    assert (found.time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == found.created_at


def test_the_merge_base_is_where_branches_parted(graph: og.Graph) -> None:
    commit(graph)
    base = commit(graph)
    graph.branches.create("work")
    ours, theirs = commit(graph), commit(graph, "work")
    found = graph.commits.merge_base(ours, theirs)
    assert found is not None
    assert found.id == base
    assert graph.commits.merge_base(base, theirs) == found
    with pytest.raises(errors.CommitNotFound, match=UNKNOWN):
        graph.commits.merge_base(ours, UNKNOWN)


# --- the past ------------------------------------------------------------------------------------


def test_the_past_is_found_by_commit_version_and_time(graph: og.Graph) -> None:
    before = commit(graph, rows=1)
    snapshot = graph.snapshot()
    commit(graph, rows=2)
    past = graph.commits.get(before)
    moments: list[datetime | str] = [
        past.time,
        past.time.astimezone(timezone(timedelta(hours=5, minutes=30))),
        past.time.isoformat(),
        past.time.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        past.time.replace(tzinfo=None).isoformat(" ", "microseconds"),
    ]
    found = [graph.at(commit=before), graph.at(version=past.version), *(graph.at(time=at) for at in moments)]
    assert found == [snapshot] * len(found)
    assert {one.tables["node:Person"].rows for one in found} == {1}
    assert len({hash(one) for one in found}) == 1
    assert graph.snapshot().tables["node:Person"].rows == 2
    assert graph.snapshot() != snapshot
    with pytest.raises(errors.VersionNotFound):
        graph.at(time=graph.commits.list()[-1].time - timedelta(microseconds=1))


def test_a_microsecond_decides_between_two_commits(graph: og.Graph) -> None:
    first, second = commit(graph), commit(graph)
    later = graph.commits.get(second).time
    assert graph.at(time=later).id == second
    assert graph.at(time=later - timedelta(microseconds=1)).id == first
    assert graph.at(time=(later - timedelta(microseconds=1)).isoformat()).id == first


def test_the_past_of_a_branch_is_asked_for_by_its_name(graph: og.Graph) -> None:
    graph.branches.create("work")
    own = graph.commits.get(commit(graph, "work", rows=7))
    assert graph.at(version=own.version, branch="work").tables["node:Person"].rows == 7
    assert graph.at(time=own.time, branch="work").id == own.id
    assert graph.at(commit=own.id).branch == "work"
    assert graph.at(time=own.time).id != own.id


def test_a_snapshot_has_the_schema_of_its_time(graph: og.Graph) -> None:
    first = graph.snapshot().id
    later = commit(graph)
    root = Root.at(Location.parse(graph.uri))
    root.objects.write_text(root.layout.past_schema(later), "node Robot { serial: String @key }")
    commit(graph)
    assert set(graph.at(commit=first).schema.nodes) == {"Person"}
    assert set(graph.at(commit=later).schema.nodes) == {"Robot"}
    # A head without a record of its own has the accepted schema: another implementation keeps no records.
    assert set(graph.snapshot().schema.nodes) == {"Person"}


@pytest.mark.parametrize(
    ("target", "expected", "message"),
    [
        ({}, errors.BadRequest, "exactly one of commit, version and time, not none of them"),
        ({"branch": "main"}, errors.BadRequest, "exactly one"),
        ({"commit": UNKNOWN, "version": 1}, errors.BadRequest, "not commit and version"),
        ({"version": 1, "time": "2030-01-01"}, errors.BadRequest, "not version and time"),
        ({"commit": "", "version": 0, "time": ""}, errors.BadRequest, "not commit and version and time"),
        ({"commit": UNKNOWN, "branch": "main"}, errors.BadRequest, "every branch"),
        ({"commit": UNKNOWN}, errors.CommitNotFound, UNKNOWN),
        ({"commit": ""}, errors.CommitNotFound, "''"),
        ({"version": 0}, errors.VersionNotFound, "version 0 of branch 'main'"),
        ({"version": 99}, errors.VersionNotFound, "99"),
        ({"version": 1, "branch": "nowhere"}, errors.BranchNotFound, "nowhere"),
        ({"time": "yesterday"}, errors.InvalidValue, "yesterday"),
        ({"time": "2030-02-30"}, errors.InvalidValue, "2030-02-30"),
        ({"time": ""}, errors.InvalidValue, "''"),
        ({"time": datetime(2030, 1, 1)}, errors.InvalidValue, "no zone"),  # noqa: DTZ001
        (
            {"time": "1999-12-31T00:00:00Z"},
            errors.VersionNotFound,
            "at 1999-12-31T00:00:00.000Z of branch 'main'",
        ),
    ],
)
def test_a_target_that_cannot_be_is_reported(
    graph: og.Graph, target: dict[str, Any], expected: type[errors.OmnigraphError], message: str
) -> None:
    with pytest.raises(expected, match=re.escape(message)):
        graph.at(**target)


# --- freshness -----------------------------------------------------------------------------------


def test_the_work_of_others_is_seen_without_reopening_and_snapshots_stay(graph: og.Graph) -> None:
    before = graph.snapshot()
    made = commit(graph, rows=5)
    assert graph.snapshot().id == made
    assert before.tables["node:Person"].rows == 0
    graph.refresh()
    assert graph.snapshot().id == made


def test_a_plan_for_another_schema_keeps_identities(graph: og.Graph, tmp_path: Path) -> None:
    (tmp_path / "next.pg").write_text(SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")'), "utf-8")
    plan = graph.plan_schema(tmp_path / "next.pg")
    assert plan.supported
    assert [step["kind"] for step in plan.to_json()["steps"]] == ["rename_property"]
    assert graph.plan_schema(SCHEMA).steps == ()


# --- the public face -----------------------------------------------------------------------------


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = (
        "import sys, omnigraph as og; og.errors.GraphNotFound; dir(og); print(*sys.modules, sep='\\n');"
        "assert og.Graph is og.Graph; assert 'lance' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "omnigraph.errors" in loaded
    assert loaded & {"lance", "pyarrow", "numpy", "obstore", "typer", "omnigraph.engine"} == set()


def test_the_face_has_its_names_and_no_misspelt_ones() -> None:
    assert set(og.__all__) >= {
        "Commit",
        "Graph",
        "Progress",
        "Result",
        "Snapshot",
        "__version__",
        "errors",
        "init",
        "open",
        "progress_to",
    }
    assert set(og.__all__) <= set(dir(og))
    assert all(getattr(og, name) is not None for name in og.__all__)
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        og.opne  # type: ignore[attr-defined]  # noqa: B018


def public_members() -> Iterator[tuple[str, Any]]:
    from omnigraph import graph

    for owner_name in graph.__all__:
        owner = getattr(graph, owner_name)
        yield owner_name, owner
        if inspect.isclass(owner):
            for name, member in vars(owner).items():
                if not name.startswith("_") and (callable(member) or hasattr(member, "__get__")):
                    yield f"{owner_name}.{name}", member


def plain_function(member: Any) -> Any:
    for attribute in ("fget", "func", "__func__"):
        member = getattr(member, attribute, None) or member
    return member


@pytest.mark.parametrize(
    ("name", "member"), list(public_members()), ids=[name for name, _ in public_members()]
)
def test_every_public_name_has_types_and_a_docstring(name: str, member: Any) -> None:
    found = plain_function(member)
    if inspect.ismemberdescriptor(found):
        return  # a field of a dataclass: its class lists it
    assert found.__doc__
    assert not found.__doc__.startswith(f"{name}("), "a docstring that dataclass wrote"
    if inspect.isclass(found):
        return
    parameters = set(inspect.signature(found).parameters) - {"self", "cls"}
    public = {name: getattr(og, name) for name in og.__all__}
    assert parameters | {"return"} <= typing.get_type_hints(found, localns=public).keys()


def test_branches_and_commits_show_themselves_as_tables(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    graph.branches.create("draft")
    newest = next(iter(graph.commits))
    time = newest.time.strftime("%Y-%m-%d %H:%M:%S UTC")
    caption, heading, rule, main, draft = repr(graph.branches).splitlines()
    assert caption == f"Branches of {graph.uri}"
    assert heading.split() == ["branch", "|", "made", "from", "|", "commit", "|", "time", "|", "actor"]
    assert set(rule) == {"-", "+"}
    assert main.split(" | ")[2:4] == [newest.id, time]
    assert draft.split(" | ")[0].rstrip() == "draft"
    first = repr(graph.commits).splitlines()[3]
    assert first.split(" | ")[0] == newest.id
    monkeypatch.setenv("COLUMNS", "40")
    assert all(len(line) <= 40 for line in repr(graph.commits).splitlines()[1:])


def test_reprs_say_what_it_is(graph: og.Graph) -> None:
    snapshot = graph.snapshot()
    assert repr(graph) == f"<Graph '{graph.uri}'>"
    assert repr(og.open(graph.uri, read_only=True)) == f"<Graph '{graph.uri}' read-only>"
    graph.close()
    assert repr(graph.branches) == f"<Branches of '{graph.uri}'>"
    assert repr(graph.commits) == f"<Commits of '{graph.uri}'>"
    assert repr(snapshot) == f"<Snapshot {snapshot.id} of 'main' at version {snapshot.version}, 2 tables>"


# --- documentation -------------------------------------------------------------------------------


def test_the_examples_of_the_guide_do_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    sessions = re.findall(r"^```pycon\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    assert len(sessions) >= 5
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest("\n".join(sessions), {}, "python.md", None, 0)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(test, out=report.append).failed == 0, "".join(report)


def test_the_guide_names_everything_public() -> None:
    guide = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    names = [name.rpartition(".")[2] for name, _ in public_members()]
    assert [name for name in names if not re.search(rf"\b{name}\b", guide)] == []
