"""Upkeep of a graph: compact and index its tables, remove what is old, repair and copy it."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from omnigraph.arguments import check_arguments
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.tasks.runner import EngineName
from omnigraph.progress import ProgressListener, progress_to
from omnigraph.query.reader import save_topologies
from omnigraph.storage.location import Location

if TYPE_CHECKING:
    from omnigraph.engine.copying.copier import CopyResult
    from omnigraph.engine.maintenance.cleanup.run_cleanup import CleanupResult
    from omnigraph.engine.maintenance.ensure_indexes import IndexResult
    from omnigraph.engine.maintenance.optimize import OptimizeResult
    from omnigraph.engine.maintenance.repair import RepairResult


@check_arguments
class GraphMaintenance:
    """What `Graph` offers to those who look after it."""

    @abstractmethod
    def _reading(self) -> OpenGraph: ...

    @abstractmethod
    def _writing(self) -> OpenGraph: ...

    def optimize(
        self,
        branch: str = MAIN,
        *,
        actor: str | None = None,
        message: str | None = None,
        engine: EngineName = "local",
    ) -> OptimizeResult:
        """Put small pieces of a branch's tables together and complete its indexes, in one commit.

        No row changes, and concurrent readers notice nothing. What the first walk of a new
        process needs of large edge types is prepared as well.
        """
        from omnigraph.engine.graph.relocation import relocate_if_seen
        from omnigraph.engine.maintenance.optimize import optimize as run_optimize
        from omnigraph.engine.write.transaction import Author

        author = Author(parse_branch_name(branch), actor, message=message)
        result = run_optimize(self._writing(), author, engine)
        relocate_if_seen(self._writing().root)
        save_topologies(self._writing(), author.branch)
        return result

    def ensure_indices(
        self, branch: str = MAIN, *, actor: str | None = None, message: str | None = None
    ) -> IndexResult:
        """Build the indexes that the schema asks for and a branch does not have, in one commit."""
        from omnigraph.engine.maintenance.ensure_indexes import ensure_indices as run_ensure_indices
        from omnigraph.engine.write.transaction import Author

        author = Author(parse_branch_name(branch), actor, message=message)
        return run_ensure_indices(self._writing(), author)

    def cleanup(
        self,
        keep: int | None = None,
        older_than: timedelta | str | None = None,
        *,
        staged_older_than: timedelta | str | None = None,
        dry_run: bool = False,
        actor: str | None = None,
        progress: ProgressListener | None = None,
    ) -> CleanupResult:
        """Remove old versions of tables and what failed writes and deleted branches left; never a commit.

        The newest `keep` commits of every branch stay readable, and with `older_than`, such as `7d`, all that
        was current in that time. With both, what is past both goes. Others stay in the history, but reading
        the graph as they left it fails with `HistoricalVersionReclaimed`. `dry_run` only shows what would go.
        Staged files of interrupted loads go after a week, or after `staged_older_than`: pass less only if no
        load has been running for that long. Given alone, all commits stay readable.
        """
        from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
        from omnigraph.engine.maintenance.cleanup.run_cleanup import cleanup as run_cleanup
        from omnigraph.engine.upkeep.manifest_upkeep import minimum_age
        from omnigraph.query.topology.saved_topology import remove_orphan_topologies

        opened = self._reading() if dry_run else self._writing()
        policy = CleanupPolicy.of(keep, older_than, minimum_age(), staged_older_than)
        with progress_to(progress):
            done = run_cleanup(opened, policy, dry_run=dry_run, actor=actor)
        sizes = remove_orphan_topologies(opened, dry_run=dry_run)
        return replace(done, derived_files=len(sizes), derived_bytes=sum(sizes))

    def repair(self, *, confirm: bool = False, force: bool = False, actor: str | None = None) -> RepairResult:
        """Look for tables that were modified outside omnigraph; with `confirm` publish what changed no row.

        With `force` every change is published as it is, unchecked. Rows are never moved.
        """
        from omnigraph.engine.maintenance.repair import repair as run_repair

        opened = self._writing() if confirm else self._reading()
        return run_repair(opened, confirm=confirm, force=force, actor=actor)

    def copy_to(
        self,
        destination: str | os.PathLike[str],
        *,
        read_back: bool = True,
        progress: ProgressListener | None = None,
    ) -> CopyResult:
        """Copy the graph with all branches and history to an empty place; others may write meanwhile.

        The copy holds what was published when it began, or later, and depends on nothing but itself. The
        same call continues a copy that was interrupted. Sizes of files, commits and numbers of rows are
        verified; with `read_back` every file is read again, and its checksum compared with the original's.
        """
        from omnigraph.engine.copying.copier import copy_graph

        with progress_to(progress):
            return copy_graph(self._reading(), Location.parse(destination), read_back=read_back)
