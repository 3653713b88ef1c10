"""The rules about several rows in their order, round by round, as rows that break one are dropped.

What is proven stays proven, because rows are only ever dropped: ids that differ still differ, and an edge
whose nodes are all kept still has its ends. So a further round looks at nothing but the types whose answer
the dropped rows can have changed, and a load with few bad rows costs little more than one without.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.load.checks.check_scope import (
    Breaches,
    CheckScope,
    Dropped,
    merge_breaches,
    merge_positions,
)
from omnigraph.engine.load.checks.endpoint_checks import (
    EndpointBreaches,
    check_endpoints,
    list_end_nodes,
    list_kept_edges,
)
from omnigraph.engine.load.checks.id_checks import check_ids
from omnigraph.engine.load.checks.quick_checks import FirstLook, look_at_ends, run_quick_checks
from omnigraph.engine.load.checks.unique_checks import check_uniques

_State = tuple[int, ...]
"""How many rows were dropped of the types that an answer depends on; a higher number may change it."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What the checks of a load against one state of a branch show."""

    breaches: tuple[Breaches, ...]
    """All breaches of the first rule that is broken."""
    losers: Dropped
    """Rows that do not count, because a later one has their id."""


class CheckRounds:
    """The checks of one load against one state of the branch.

    The caller drops every breach of a round before the next.
    """

    def __init__(self, scope: CheckScope) -> None:
        self._scope = scope
        self._look: FirstLook | None = None
        self._losers: Dropped = {}
        self._released: dict[str, list[str]] = {}
        """By type, where the stored edges are noted that the load replaces."""
        self._seen: dict[tuple[str, str], _State] = {}
        """By rule and type, on what the latest answer was based."""

    def run(self, dropped: Dropped) -> CheckResult:
        """What is wrong with the load without the dropped rows."""
        found = self._check_ids(dropped)
        # Out for good: a row does not come back when the later one with its id is dropped.
        counted = merge_positions(dropped, self._losers)
        found = found or self._check_uniques(counted) or self._check_ends(dropped, counted)
        return CheckResult(tuple(found), self._losers)

    def _check_ids(self, dropped: Dropped) -> list[Breaches]:
        scope = self._scope
        out = merge_positions(dropped, self._losers)
        shared = {}
        if self._look is None:
            self._look = run_quick_checks(scope)
            shared = dict(self._look.shared)
        states = {key: _count(dropped, key) if scope.releases(key) else () for key in scope.keys}
        keys = self._outdated("ids", states)
        found = check_ids(scope, out, keys, shared)
        self._losers = merge_positions(self._losers, *(one.losers for one in found))
        for key in keys:
            self._released[key] = [one.released[key] for one in found if key in one.released]
            self._seen["ids", key] = states[key]
        return merge_breaches(breaches for one in found for breaches in one.breaches)

    def _check_uniques(self, counted: Dropped) -> list[Breaches]:
        scope = self._scope
        merges = scope.mode is Mode.MERGE
        # Without a row that replaces a stored one, that one counts again.
        states = {
            key: _count(counted, key) if merges else ()
            for key in scope.keys
            if scope.task.targets[key].owner.uniques
        }
        keys = self._outdated("unique", states)
        found = merge_breaches(check_uniques(scope, counted, keys))
        for key in keys:
            self._seen["unique", key] = states[key]
        return found

    def _check_ends(self, dropped: Dropped, counted: Dropped) -> list[Breaches]:
        scope = self._scope
        edges = [key for key in scope.keys if key.startswith("edge:")]
        states = {
            key: (
                *_count(dropped, *sorted(list_end_nodes(scope, [key]))),
                *(_count(counted, key) if scope.task.counts(key) else ()),
            )
            for key in [*edges, *list_kept_edges(scope)]
        }
        due = self._outdated("ends", states)
        lacking = self._look_at_ends([key for key in edges if key in due], dropped, counted)
        rest = [key for key in edges if key in due and key not in lacking]
        kept = [key for key in due if key not in edges]
        released = [(key, name) for key in rest for name in self._released.get(key, ())]
        ends = check_endpoints(scope, counted, released, rest, kept)
        missing = merge_breaches([*(one for some in lacking.values() for one in some), *ends.missing])
        uncounted = _list_types(ends) if missing else set()
        for key in due:
            if key not in uncounted:
                self._seen["ends", key] = states[key]
        return missing or merge_breaches(ends.counts)

    def _look_at_ends(
        self, keys: Sequence[str], dropped: Dropped, counted: Dropped
    ) -> dict[str, tuple[Breaches, ...]]:
        """The edges without an end, of the types that need not meet their nodes."""
        scope = self._scope
        assert self._look is not None, "ids are checked first"
        known = {
            key: lacking
            for key, lacking in self._look.ends.items()
            if key in keys
            and not any(_count(dropped, *list_end_nodes(scope, [key])))
            and not (lacking and any(_count(counted, key)))
        }
        again = [key for key in keys if key not in known] if any(_count(counted, *scope.keys)) else []
        return {**known, **(look_at_ends(scope, again, counted) if again else {})}

    def _outdated(self, rule: str, states: dict[str, _State]) -> list[str]:
        return [key for key, state in states.items() if self._seen.get((rule, key)) != state]


def _count(dropped: Dropped, *keys: str) -> _State:
    return tuple(len(dropped.get(key, ())) for key in keys)


def _list_types(ends: EndpointBreaches) -> set[str]:
    """The types whose numbers of edges are wrong: that is reported once no edge lacks an end."""
    return {one.key for one in ends.counts}
