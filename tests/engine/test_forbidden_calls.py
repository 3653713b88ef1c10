"""What moves a table or makes a change visible is named only where that is the job."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import omnigraph

SOURCE = Path(omnigraph.__file__).parent

# Each name with the modules that may use it, and why; a folder stands for everything in it.
ALLOWED: dict[str, dict[str, str]] = {
    "commit_staged": {
        "engine/commit/protocol.py": "the commit protocol",
        "engine/commit/recovery/": "finishes or undoes what a writer left behind",
        "engine/lifecycle/create.py": "sets up a manifest that is not used yet",
        "engine/graph/migrations.py": "stamps a manifest; changes no graph content",
        "engine/upkeep/table_rewrite.py": "a named effect of a plan; changes no row",
        "engine/upkeep/index_upkeep.py": "builds declared indexes after a write; changes no row",
        "engine/upkeep/manifest_upkeep.py": "the barrier that changes nothing, before versions are collected",
    },
    "collect_versions": {
        "engine/upkeep/manifest_upkeep.py": "keeps the manifest cheap; its past is read from the newest one",
        "engine/maintenance/cleanup/": "removes the past that somebody asked to remove",
    },
    "collect_with_files": {
        "engine/commit/recovery/removals.py": "removes the past of what a schema change was allowed to lose",
    },
    "stage_restore": {"engine/commit/recovery/": "undoes what a writer left behind"},
    "merge_rows": {
        "engine/graph/publish.py": "the one compare-and-swap",
        "engine/graph/migrations.py": "copies history into the manifest; changes no graph content",
        "engine/commit/recovery/": "keeps the audit, a table of its own",
    },
    "replace_row": {"engine/graph/publish.py": "the one compare-and-swap"},
    "publish": {
        "engine/commit/protocol.py": "the commit protocol",
        "engine/commit/recovery/": "finishes or undoes what a writer left behind",
        "engine/maintenance/repair.py": "publishes where tables stand already; moves none",
    },
    "repin": {
        "engine/upkeep/index_upkeep.py": "builds declared indexes after a write; changes no row",
        "engine/commit/recovery/": "adopts what upkeep left behind",
        "engine/upkeep/after_write.py": "keeps tables cheap after a write; changes no row",
    },
    "commit_compaction": {"engine/upkeep/table_rewrite.py": "a named effect of a plan; changes no row"},
    "commit_rewrite": {
        "engine/upkeep/table_rewrite.py": "a named effect of a plan; changes no row",
        "engine/upkeep/after_write.py": "keeps tables cheap after a write; changes no row",
    },
    "commit_segments": {
        "engine/upkeep/index_upkeep.py": "builds declared indexes after a write; changes no row",
        "engine/upkeep/after_write.py": "keeps tables cheap after a write; changes no row",
    },
    "rewrite_table": {"engine/commit/protocol.py": "the commit protocol"},
    "compact": {"engine/upkeep/manifest_upkeep.py": "keeps the manifest cheap; changes no graph content"},
}
# Names that mean something else as well: only their import from here counts.
AMBIGUOUS = {"compact": "omnigraph.storage.upkeep", "rearrange": "omnigraph.engine.upkeep.table_rewrite"}
FOREIGN = ("lance", "pylance", "obstore")
# Where it is a format of files, and no package.
ENDINGS = ("engine/load/sources/item.py", "engine/export/export_request.py")


def modules() -> Iterator[tuple[str, str]]:
    for file in sorted(SOURCE.rglob("*.py")):
        name = file.relative_to(SOURCE).as_posix()
        if not name.startswith("storage/"):
            yield name, file.read_text()


def find_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
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


def moved_outside(name: str, tree: ast.AST) -> list[str]:
    return [
        f"{name}:{line} names {found}"
        for found, line in find_names(tree)
        if found in ALLOWED and not any(name == at or name.startswith(at) for at in ALLOWED[found] if at)
    ]


def _is_foreign(text: str | None) -> bool:
    return text is not None and text.partition(".")[0] in FOREIGN


def lance_outside(name: str, tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
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


@dataclass(frozen=True)
class Found:
    """What the tests ask of a module; its tree takes much memory, and parsing it again takes long."""

    guarded: frozenset[str]
    moved_outside: tuple[str, ...]
    lance_outside: tuple[str, ...]


@cache
def found_in_source() -> dict[str, Found]:
    """By module."""
    found = {}
    for name, source in modules():
        tree = ast.parse(source)
        guarded = frozenset(each for each, _ in find_names(tree) if each in ALLOWED)
        found[name] = Found(guarded, tuple(moved_outside(name, tree)), tuple(lance_outside(name, tree)))
    return found


def test_only_the_door_and_its_exceptions_move_tables_or_publish() -> None:
    guilty = [
        each
        for name, found in found_in_source().items()
        if name != "engine/graph/publish.py"
        for each in found.moved_outside
    ]
    assert guilty == []


def test_publish_itself_only_swaps_rows() -> None:
    found = found_in_source()["engine/graph/publish.py"]
    assert [each for each in found.moved_outside if not each.endswith(" publish")] == []


def test_nothing_outside_storage_names_lance() -> None:
    assert [each for found in found_in_source().values() for each in found.lance_outside] == []


def test_every_exception_is_still_needed() -> None:
    used = {(name, each) for name, found in found_in_source().items() for each in found.guarded}
    files = set(found_in_source())
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
        "from omnigraph.engine.graph.publish import ManifestChanges, publish",
        "from omnigraph.engine import publish as door\ndoor.publish(c)",
        "getattr(staging, 'commit_staged')(x)",
        "from omnigraph.storage.upkeep import compact",
    ],
)
def test_the_walk_sees_every_way_to_name_a_call(source: str) -> None:
    assert moved_outside("graph.py", ast.parse(source))
    harmless = ast.parse("from omnigraph.lang.schema.ir import compact\ncompact({})")
    assert not moved_outside("graph.py", harmless)


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
    assert lance_outside("graph.py", ast.parse(source))
    harmless = ast.parse("from omnigraph.storage.failures import TableFailureKind")
    assert not lance_outside("graph.py", harmless)
