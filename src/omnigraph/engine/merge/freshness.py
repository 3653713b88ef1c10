"""Whether decisions are still about what they were made for."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.engine.merge.breach import Breach
from omnigraph.engine.merge.choices import Choices, EntityChoice
from omnigraph.engine.merge.conflict import MergeConflict
from omnigraph.errors import StaleResolutions


class Freshness:
    """The decisions about single entities whose conflict was not met yet."""

    def __init__(self, choices: Choices) -> None:
        self._left: dict[tuple[str, str | None], list[EntityChoice]] = {}
        self._changed = False
        for one in choices.entities:
            if one.decides:
                self._left.setdefault((one.table_key, one.entity_id), []).append(one)

    def names(self, breach: Breach) -> bool:
        """Whether a decision about an entity waits for its conflict."""
        return bool(self._left.get((breach.table_key, breach.entity_id)))

    @property
    def is_left(self) -> bool:
        """Whether any decision does."""
        return any(self._left.values())

    def meet(self, conflicts: Iterable[MergeConflict]) -> None:
        """Conflicts that there are."""
        for conflict in conflicts:
            waiting = self._left.get((conflict.table_key, conflict.entity_id), [])
            for choice in [one for one in waiting if one.is_about(conflict.kind)]:
                if choice.digest in (None, conflict.digest):
                    waiting.remove(choice)
                else:
                    self._changed = True

    def require_none(self) -> None:
        """Fail when a decision is about an entity that is not in conflict, or in another one by now."""
        if self.is_left:
            names = [one.name for waiting in self._left.values() for one in waiting]
            raise StaleResolutions(names, changed=self._changed)
