"""Another writer changed what an operation relied on, or two changes contradict each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.errors.base import OmnigraphError
from omnigraph.errors.violation_summary import summarize_violations

_NAMES_SHOWN = 5


class Conflict(OmnigraphError):
    """The state this operation relied on is not the state that holds."""

    code = "conflict"
    status = 409


class AlreadyInitialized(Conflict):
    """There is a graph, or a part of one, at this place already."""

    code = "already_initialized"

    def __init__(self, uri: str, *, found: str, remedy: str | None = None) -> None:
        super().__init__(
            f"'{uri}' already holds a graph (found {found})",
            remedy=remedy or "open it, or choose another place",
        )
        self.uri = uri
        self.found = found


class PlaceNotEmpty(Conflict):
    """A graph was to be created, or copied to, a place with other files."""

    code = "place_not_empty"

    def __init__(
        self, uri: str, found: Sequence[str], *, remedy: str = "name a new or an empty folder"
    ) -> None:
        named = ", ".join(f"'{name}'" for name in found[:_NAMES_SHOWN])
        more = f" and {len(found) - _NAMES_SHOWN} more" if len(found) > _NAMES_SHOWN else ""
        super().__init__(
            f"'{uri}' is not empty (found {named}{more}), and a graph needs a place of its own", remedy=remedy
        )
        self.uri = uri
        self.found = tuple(found)


class InitializationClaimed(Conflict):
    """Another process is creating a graph at this place right now."""

    code = "initialization_claimed"
    retryable = True

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"another process is initialising '{uri}'",
            remedy="wait for it to finish; if it died, run `omnigraph init --force`",
        )
        self.uri = uri


class BranchExists(Conflict):
    """A branch of this name exists already."""

    code = "branch_exists"

    def __init__(self, branch: str) -> None:
        super().__init__(
            f"branch '{branch}' already exists", remedy="choose another name, or delete it first"
        )
        self.branch = branch


class TagExists(Conflict):
    """A tag of this name exists already."""

    code = "tag_exists"

    def __init__(self, tag: str, commit_id: str) -> None:
        super().__init__(
            f"tag '{tag}' already exists, at commit '{commit_id}'",
            remedy="choose another name, or move the tag with --force (`force=True`)",
        )
        self.tag = tag
        self.commit_id = commit_id


class BranchInUse(Conflict):
    """Other branches still depend on this one."""

    code = "branch_in_use"

    def __init__(self, branch: str, dependants: Sequence[str]) -> None:
        names = ", ".join(f"'{name}'" for name in dependants)
        super().__init__(
            f"branch '{branch}' cannot be deleted: {names} still depends on it",
            remedy="delete the dependent branches first",
        )
        self.branch = branch
        self.dependants = tuple(dependants)


class SchemaApplyBlocked(Conflict):
    """A schema apply and other work exclude each other."""

    code = "schema_apply_blocked"

    def __init__(self, message: str, *, branches: Sequence[str] = (), remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.branches = tuple(branches)


class SchemaContractBroken(Conflict):
    """The schema files of a graph disagree with one another."""

    code = "schema_contract_broken"


class TableDrift(Conflict):
    """Something else than omnigraph changed a table; what it wrote belongs to no commit."""

    code = "drift_needs_repair"

    def __init__(self, table_key: str, *, published: int, head: int) -> None:
        super().__init__(
            f"table '{table_key}' was changed outside of a commit: it is at version {head}, "
            f"the graph publishes version {published}",
            remedy="look at it with `omnigraph repair`, which can also publish the change as it is",
        )
        self.table_key = table_key
        self.published = published
        self.head = head


class TableVersionConflict(Conflict):
    """A table moved since this write was prepared."""

    code = "manifest_conflict"
    retryable = True

    def __init__(self, table_key: str, *, expected: int | None, actual: int | None) -> None:
        super().__init__(
            f"table '{table_key}' changed during preparation: expected version {expected}, found {actual}",
            remedy="read again and retry the write",
        )
        self.table_key = table_key
        self.expected = expected
        self.actual = actual


class ReadSetChanged(Conflict):
    """Something this write read (a table, the branch, the schema) changed before it took effect."""

    code = "read_set_conflict"
    retryable = True

    def __init__(self, member: str, *, expected: str | None, actual: str | None) -> None:
        super().__init__(
            f"write authority '{member}' changed during preparation: expected {expected}, found {actual}",
            remedy="read again and retry the write",
        )
        self.member = member
        self.expected = expected
        self.actual = actual


class PublishContention(Conflict):
    """Too many writers published at the same time; the retry budget is used up."""

    code = "publish_contention"
    retryable = True

    def __init__(self, branch: str, attempts: int) -> None:
        super().__init__(
            f"branch '{branch}' was too busy: {attempts} attempts to publish lost the race",
            remedy="retry the write",
        )
        self.branch = branch
        self.attempts = attempts


class Decided(Conflict):
    """An operation can end in one of two commits, and the other one is visible already."""

    code = "decided"

    def __init__(self, commit_id: str, rival: str) -> None:
        super().__init__(f"commit '{commit_id}' cannot be made: its operation ended with commit '{rival}'")
        self.commit_id = commit_id
        self.rival = rival


class KeyConflict(Conflict):
    """A strict insert found its id stored already."""

    code = "key_conflict"

    def __init__(
        self,
        kind: str,
        type_name: str,
        entity_id: str | None,
        *,
        violations: Sequence[Any] = (),
        total: int = 1,
        counts: Mapping[str, int] | None = None,
        remedy: str | None = None,
    ) -> None:
        what = f"id '{entity_id}'" if entity_id is not None else "this id"
        super().__init__(
            f"{kind} type '{type_name}' already has {what}",
            remedy=remedy or "use merge to replace stored rows",
        )
        self.entity_kind = kind
        self.type_name = type_name
        self.entity_id = entity_id
        self.violations = tuple(violations)
        """In a load, the first of all records in conflict, each with its place."""
        self.total = total
        self.counts = dict(counts or {})
        """In a load, how many violations there are in all, by kind."""

    def summary(self) -> str:
        """All violations of a load in short: how many, what to do, and a few examples."""
        return "\n".join(summarize_violations(self.violations, self.total, self.counts, self.remedy))


class MergeConflicts(Conflict):
    """Two branches changed the same things in different ways."""

    code = "merge_conflicts"

    def __init__(
        self, source: str, target: str, conflicts: Sequence[Any], *, can_preview: bool = True
    ) -> None:
        preview = "; ".join(str(conflict) for conflict in conflicts[:3])
        rest = f"; and {len(conflicts) - 3} more" if len(conflicts) > 3 else ""
        counted = "1 conflict" if len(conflicts) == 1 else f"{len(conflicts)} conflicts"
        super().__init__(
            f"merging '{source}' into '{target}' has {counted}: {preview}{rest}",
            remedy=_separable(conflicts)
            + (
                "preview the merge with --dry-run, then decide with --strategy or --resolutions, "
                "or change one of the branches"
                if can_preview
                else "decide with --strategy ours or theirs, or change the branch"
            ),
        )
        self.source = source
        self.target = target
        self.conflicts = tuple(conflicts)


def _separable(conflicts: Sequence[Any]) -> str:
    """What to try first, where the branches changed different properties of an entity."""
    count = sum(getattr(conflict, "is_separable", False) for conflict in conflicts)
    if not count:
        return ""
    some = (
        "this" if len(conflicts) == 1 else "all of these" if count == len(conflicts) else f"{count} of these"
    )
    return f"merge with --granularity property, which settles {some}; or "


class NoCommonCommit(Conflict):
    """Two branches share no history, so it is unknown what either of them changed."""

    code = "no_common_commit"

    def __init__(self, source: str, target: str) -> None:
        super().__init__(f"branches '{source}' and '{target}' have no commit in common")
        self.source = source
        self.target = target


class StaleResolutions(Conflict):
    """Decisions about conflicts of a merge are about a state that is no more."""

    code = "stale_resolutions"

    def __init__(self, entities: Sequence[str], *, changed: bool) -> None:
        names = ", ".join(entities[:3]) + (f" and {len(entities) - 3} more" if len(entities) > 3 else "")
        why = "what is in conflict has changed since" if changed else "there is no such conflict"
        super().__init__(
            f"the resolutions decide on {names}, but {why}",
            remedy="preview the merge again with --write-resolutions and decide again",
        )
        self.entities = tuple(entities)


class ChangeDiffRefused(Conflict):
    """The changes of a commit cannot be reported as rows."""

    code = "change_diff_refusal"

    def __init__(self, message: str, *, reason: str, commit_id: str, type_name: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.commit_id = commit_id
        self.type_name = type_name
