"""What the versions of forks record about where their table is, as Lance itself reads them."""

from __future__ import annotations

from pathlib import Path

import lance


def forks_below(graph: Path) -> list[Path]:
    """The folder of every fork of every table of a graph in a folder."""
    return sorted(versions.parent for versions in graph.rglob("tree/**/_versions"))


def bases_on_disk(graph: Path) -> set[str]:
    """The roots of graphs that versions of forks record for the files they share; damaged ones have none."""
    return {base for fork in forks_below(graph) for base in bases_of(fork, graph)}


def bases_of(fork: Path, graph: Path) -> set[str]:
    """The same for the versions of one fork."""
    found = set()
    for file in (fork / "_versions").glob("*.manifest"):
        if file.read_bytes().endswith(b"LANC"):
            dataset = lance.dataset(str(fork), version=(1 << 64) - 1 - int(file.stem))
            found |= {_root_of(str(base.path), fork, graph) for base in dataset.base_paths().values()}
    return found


def _root_of(path: str, fork: Path, graph: Path) -> str:
    parts = fork.relative_to(graph).parts
    root, _, tail = path.partition("/" + "/".join(parts[: parts.index("tree")]))
    assert not tail or tail.startswith("/tree/"), path
    return root
