"""A folder for the rows of a merge that are too many for memory, until they are part of tables."""

from __future__ import annotations

import logging
from functools import cached_property

from omnigraph.engine.graph.root import Root
from omnigraph.errors import OmnigraphError

_log = logging.getLogger(__name__)


class Scratch:
    """The folder; it gets its name at the first use."""

    def __init__(self, root: Root) -> None:
        self._root = root

    @cached_property
    def name(self) -> str:
        """The name below the staging folder; all files in it belong to this merge."""
        return self._root.new_id()

    def clear(self) -> None:
        """Remove every file that did not become part of a table, after the merge."""
        if "name" not in self.__dict__:
            return
        place = self._root.layout.staging / self.name
        try:
            self._root.objects.delete_prefix(place)
        except OmnigraphError as failure:
            _log.warning("could not remove the files of a merge in '%s'; cleanup will: %s", place, failure)
