"""Whether a copy has every file with every byte, and shows what the original shows."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.engine.copying.cut import Cut
from omnigraph.engine.copying.transfer import Digest, compute_digest, run_parallel
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.errors import CopyNotVerified
from omnigraph.progress import stage


def verify_sizes(target: Root, sizes: Mapping[str, int]) -> None:
    """Every file is there, with as many bytes as were to be stored."""
    stored = target.objects.list_all(target.layout.root)
    for name, size in sizes.items():
        if stored.get(name) != size:
            raise _not_verified(target, name, f"it has {stored.get(name)} bytes and should have {size}")


def verify_digests(target: Root, digests: Mapping[str, Digest], sizes: Mapping[str, int]) -> None:
    """Every file is read back, and holds what was read from the original."""
    with stage("verify", tasks=len(digests), size=sum(sizes.values())) as verifying:

        def verify(name: str) -> None:
            if compute_digest(target.objects, target.layout.root / name) != digests[name]:
                raise _not_verified(target, name, "its checksum is not that of the original")
            verifying.advance(tasks=1, size=sizes[name])

        run_parallel(verify, digests)


def verify_content(target: Root, cut: Cut) -> None:
    """Every branch of the copy can be read, and has the commits, the tables and the rows of the original."""
    copy = OpenGraph(target, read_only=True)
    for branch, loaded in cut.branches.items():
        found = copy.load(branch)
        here, there = loaded.state, found.state
        if (here.head, here.commits, here.entries()) != (there.head, there.commits, there.entries()):
            raise _not_verified(target, f"branch '{branch}'", "it is not at the commit of the original")
        for entry in there.entries().values():
            table = target.tables.open(target.layout.table(entry.path), entry.version, branch=entry.owner)
            if entry.row_count is not None and table.count() != entry.row_count:
                reason = f"it has {table.count()} rows and should have {entry.row_count}"
                raise _not_verified(target, f"{entry.key} of branch '{branch}'", reason)


def _not_verified(target: Root, what: str, reason: str) -> CopyNotVerified:
    return CopyNotVerified(target.uri, what, reason)
