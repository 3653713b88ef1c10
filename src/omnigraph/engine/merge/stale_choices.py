"""Refuse choices about conflicts that no longer exist."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.engine.merge.choices import EntityChoice, MergeChoices
from omnigraph.engine.merge.conflict import MergeConflict
from omnigraph.engine.merge.violations import RuleViolation
from omnigraph.errors import StaleResolutions


class PendingChoices:
    """The choices about single entities whose conflict was not found yet."""

    def __init__(self, choices: MergeChoices) -> None:
        self._pending: dict[tuple[str, str | None], list[EntityChoice]] = {}
        self._changed = False
        for one in choices.entities:
            if one.decides:
                self._pending.setdefault((one.table_key, one.entity_id), []).append(one)

    def waits_for(self, violation: RuleViolation) -> bool:
        """Whether a choice waits for this conflict."""
        return bool(self._pending.get((violation.table_key, violation.entity_id)))

    @property
    def has_pending(self) -> bool:
        """Whether any choice waits for its conflict."""
        return any(self._pending.values())

    def match(self, conflicts: Iterable[MergeConflict]) -> None:
        """Match choices with existing conflicts."""
        for conflict in conflicts:
            waiting = self._pending.get((conflict.table_key, conflict.entity_id), [])
            for choice in [one for one in waiting if one.is_about(conflict.kind)]:
                if choice.digest in (None, conflict.digest):
                    waiting.remove(choice)
                else:
                    self._changed = True

    def require_all_matched(self) -> None:
        """Fail when a choice is about an entity that is not in conflict, or in another conflict."""
        if self.has_pending:
            names = [one.name for waiting in self._pending.values() for one in waiting]
            raise StaleResolutions(names, changed=self._changed)
