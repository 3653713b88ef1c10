"""Figures of the house, for people who change it: `python -m tests.house.measure`.

Import cycles (imports inside functions count), names of functions, and how many files one small operation
goes through. Tests use parts of it.
"""

from __future__ import annotations

import ast
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from tests.house.retired_words import count

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "omnigraph"
PACKAGE = SOURCE.name

_PARTICIPLE = re.compile(
    r"(?:^|_)\w+(?:ed|ing|ten|ken|wn)$|^(?:told|found|met|kept|made|held|left|put|said)$"
)


def modules() -> dict[str, ast.Module]:
    """The syntax trees of all modules by their names."""
    return {_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")}


def _name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Which modules of ours each module imports, wherever in it that stands."""
    found: dict[str, set[str]] = {}
    for name, tree in trees.items():
        inside = set()
        for node in ast.walk(tree):
            match node:
                case ast.ImportFrom(module=str(module), names=names):
                    inside |= {f"{module}.{one.name}" for one in names} | {module}
                case ast.Import(names=names):
                    inside |= {one.name for one in names}
                case _:
                    pass
        # A package is imported with each of its modules; that is no use of it.
        used = {one for one in inside if one in trees}
        found[name] = {one for one in used if not any(other.startswith(f"{one}.") for other in used)} - {name}
    return found


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or not, largest first."""
    reach = {name: _reachable(graph, name) for name in graph}
    groups = {frozenset(other for other in reach[name] if name in reach[other]) for name in graph}
    return sorted((sorted(group) for group in groups if len(group) > 1), key=len, reverse=True)


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph[waiting.pop()] - seen:
            seen.add(name)
            waiting.append(name)
    return seen


def function_names(trees: Mapping[str, ast.Module]) -> list[str]:
    """The names of all functions and methods, without special ones and without properties."""
    return [
        node.name.lstrip("_")
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("__")
        and not any(ast.unparse(one).endswith("property") for one in node.decorator_list)
    ]


def files_of(action: Callable[[], object]) -> set[str]:
    """The files of ours in which something is called while an action runs, threads included."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            found.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


def operations() -> Iterator[tuple[str, int]]:
    """How many files a one-row load, mutation, query and merge go through, in a warm graph."""
    import omnigraph

    with tempfile.TemporaryDirectory() as folder:
        graph = omnigraph.init(Path(folder) / "graph", schema="node Person { name: String @key }\n")
        ask = "query q() { match { $p: Person } return { $p.name } }"

        def load(name: str, branch: str = "main") -> None:
            graph.load([{"name": name}], type="Person", mode="append", branch=branch)

        def mutate(name: str) -> None:
            graph.mutate(f'query q() {{ insert Person {{ name: "{name}" }} }}')

        def merge(branch: str) -> None:
            graph.merge(branch, "main")

        load("a")
        mutate("b")
        graph.query(ask)
        for branch in ("one", "two"):
            graph.branches.create(branch)
            load(branch, branch)
        merge("one")
        yield "load", len(files_of(lambda: load("c")))
        yield "mutation", len(files_of(lambda: mutate("d")))
        yield "query", len(files_of(lambda: graph.query(ask)))
        yield "merge", len(files_of(lambda: merge("two")))
        graph.close()


def main() -> None:
    """Print the figures."""
    trees = modules()
    names = function_names(trees)
    graph = imports(trees)
    importers = {name: sum(name in used for used in graph.values()) for name in graph}
    print(f"modules: {len(trees)}, with one importer: {sum(number == 1 for number in importers.values())}")
    print(f"import cycles: {[len(group) for group in cycles(graph)] or 'none'}")
    for group in cycles(graph):
        print(f"  {', '.join(group)}")
    single = sum("_" not in name for name in names)
    participles = sum(bool(_PARTICIPLE.search(name)) for name in names)
    print(
        f"functions: {len(names)}, of one word {single / len(names):.0%}, "
        f"participles {participles / len(names):.0%}"
    )
    print(f"retired words: {dict(count()) or 'none'}")
    print("files: " + ", ".join(f"{name} {number}" for name, number in operations()))


if __name__ == "__main__":
    main()
