"""What moves a table or makes a change visible is named only where that is the job."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph

SOURCE = Path(omnigraph.__file__).parent

# Each name with the modules that may use it, and why; a folder stands for everything in it.
ALLOWED: dict[str, dict[str, str]] = {
    "commit_staged": {
        "engine/commit.py": "the door of every write",
        "engine/recovery/": "finishes or undoes what a writer left behind",
        "engine/initialise.py": "sets up a manifest that nobody uses yet",
        "engine/migrations.py": "stamps a manifest; changes no graph content",
        "engine/rearrange.py": "a named effect of a plan; changes no row",
        "engine/tidy.py": "keeps tables cheap after a write; changes no row",
        "engine/upkeep.py": "the barrier that changes nothing, before versions are collected",
    },
    "collect_versions": {
        "engine/upkeep.py": "keeps the manifest cheap; its past is read from the newest one",
        "engine/cleanup/": "removes the past that somebody asked to remove",
        "engine/schema_apply/": "removes the past of what a schema change was allowed to lose",
    },
    "stage_restore": {"engine/recovery/": "undoes what a writer left behind"},
    "merge_rows": {
        "engine/publish.py": "the one compare-and-swap",
        "engine/migrations.py": "copies history into the manifest; changes no graph content",
        "engine/recovery/": "keeps the audit, a table of its own",
    },
    "publish": {
        "engine/commit.py": "the door of every write",
        "engine/recovery/": "finishes or undoes what a writer left behind",
        "engine/repair.py": "publishes where tables stand already; moves none",
    },
    "repin": {
        "engine/recovery/": "adopts what upkeep left behind",
        "engine/tidy.py": "keeps tables cheap after a write; changes no row",
    },
    "commit_compaction": {"engine/rearrange.py": "a named effect of a plan; changes no row"},
    "put_in_place": {
        "engine/rearrange.py": "a named effect of a plan; changes no row",
        "engine/tidy.py": "keeps tables cheap after a write; changes no row",
    },
    "rearrange": {"engine/commit.py": "the door of every write"},
    "compact": {"engine/upkeep.py": "keeps the manifest cheap; changes no graph content"},
}
# Names that mean something else as well: only their import from here counts.
AMBIGUOUS = {"compact": "omnigraph.storage.upkeep", "rearrange": "omnigraph.engine.rearrange"}
FOREIGN = ("lance", "pylance", "obstore")
# Where it is a format of files, and no package.
ENDINGS = ("engine/load/sources/formats.py", "engine/export/run.py")


def modules() -> Iterator[tuple[str, str]]:
    for file in sorted(SOURCE.rglob("*.py")):
        name = file.relative_to(SOURCE).as_posix()
        if not name.startswith("storage/"):
            yield name, file.read_text()


def named(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every guarded name in use, whichever way it is reached."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=module, names=names):
                for alias in names:
                    if AMBIGUOUS.get(alias.name, module) == module:
                        yield alias.name, node.lineno
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                if name not in AMBIGUOUS:
                    yield name, node.lineno


def moved_outside(name: str, source: str) -> list[str]:
    return [
        f"{name}:{line} names {found}"
        for found, line in named(ast.parse(source))
        if found in ALLOWED and not any(name == at or name.startswith(at) for at in ALLOWED[found] if at)
    ]


def _is_foreign(text: str | None) -> bool:
    return text is not None and text.partition(".")[0] in FOREIGN


def lance_outside(name: str, source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                guilty = any(_is_foreign(alias.name) for alias in names)
            case ast.ImportFrom(module=module):
                guilty = _is_foreign(module)
            case ast.Constant(value=str(text)):
                guilty = text in FOREIGN and name not in ENDINGS
            case ast.Attribute(attr=attribute):
                # The handle of Lance inside a table belongs to storage alone.
                guilty = attribute == "native"
            case _:
                continue
        if guilty:
            found.append(f"{name}:{node.lineno}")
    return found


def test_only_the_door_and_its_exceptions_move_tables_or_publish() -> None:
    guilty = [
        each
        for name, source in modules()
        if name != "engine/publish.py"
        for each in moved_outside(name, source)
    ]
    assert guilty == []


def test_publish_itself_only_swaps_rows() -> None:
    source = (SOURCE / "engine" / "publish.py").read_text()
    assert [
        each for each in moved_outside("engine/publish.py", source) if not each.endswith(" publish")
    ] == []


def test_nothing_outside_storage_names_lance() -> None:
    assert [each for name, source in modules() for each in lance_outside(name, source)] == []


def test_every_exception_is_still_needed() -> None:
    used = {(name, found) for name, source in modules() for found, _ in named(ast.parse(source))}
    files = {name for name, _ in modules()}
    for guarded, places in ALLOWED.items():
        for at in places:
            if any(name.startswith(at) for name in files) and guarded != "commit_compaction":
                assert any(found == guarded and name.startswith(at) for name, found in used), (
                    f"{guarded} in {at}"
                )


@pytest.mark.parametrize(
    "source",
    [
        "from omnigraph.storage.staging import commit_staged",
        "from omnigraph.storage.staging import commit_staged as c",
        "from omnigraph.storage import staging\nstaging.commit_staged(x)",
        "import omnigraph.storage.staging\nomnigraph.storage.staging.stage_restore(t, 3)",
        "from omnigraph.storage.cas import merge_rows",
        "from omnigraph.engine.publish import Changes, publish",
        "from omnigraph.engine import publish as door\ndoor.publish(c)",
        "getattr(staging, 'commit_staged')(x)",
        "from omnigraph.storage.upkeep import compact",
    ],
)
def test_the_walk_sees_every_way_to_name_a_call(source: str) -> None:
    assert moved_outside("graph.py", source)
    assert not moved_outside("graph.py", "from omnigraph.lang.schema.ir import compact\ncompact({})")


@pytest.mark.parametrize(
    "source",
    [
        "import lance",
        "import lance.dataset as d",
        "from lance import LanceDataset",
        "from obstore.store import S3Store",
        "importlib.import_module('lance')",
        "table.native.merge_insert('id')",
    ],
)
def test_the_walk_sees_every_way_to_name_lance(source: str) -> None:
    assert lance_outside("graph.py", source)
    assert not lance_outside("graph.py", "from omnigraph.storage.lance_errors import Trouble")
