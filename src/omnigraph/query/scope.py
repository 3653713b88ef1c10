"""What expressions can read of rows in flight."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from omnigraph.engine.graph.columns import ID
from omnigraph.lang.query.terms import Distance, Fusion, Relevance, TextMatch
from omnigraph.lang.values import Stored
from omnigraph.query.frame import Frame
from omnigraph.query.request import Request
from omnigraph.query.rows import Rows
from omnigraph.query.search.scores import Scores


class FrameScope:
    """The rows of a frame: each property is taken at the positions of its variable, once."""

    def __init__(
        self,
        frame: Frame,
        rows: Callable[[str], Rows],
        request: Request,
        scores: Scores,
        *,
        streaming: bool = False,
    ) -> None:
        self._frame = frame
        self._streaming = streaming
        self._rows = rows
        self._request = request
        self._scores = scores
        self._taken: dict[tuple[str, str], pa.Array] = {}

    @property
    def length(self) -> int:
        """How many rows there are."""
        return self._frame.length

    def prop(self, var: str, name: str) -> pa.Array:
        """A property of a variable in every row."""
        found = self._taken.get((var, name))
        if found is None:
            rows, positions = self._rows(var), self._frame.variables[var]
            # All rows of a table in its own order need no taking.
            whole = not self._streaming and rows.are_all(positions)
            found = rows.column(name) if whole else rows.take(name, positions, streaming=self._streaming)
            self._taken[var, name] = found
        return found

    def entity_id(self, var: str) -> pa.Array:
        """The id of a variable in every row."""
        return self.prop(var, ID)

    def parameter(self, name: str) -> Stored:
        """A parameter of the request."""
        return self._request.parameters[name]

    def now(self) -> int:
        """The moment of the request."""
        return self._request.now

    def score(self, term: Distance | Relevance | Fusion | TextMatch) -> pa.Array:
        """The value of a search in every row: the one it was ranked by, or that of its node."""
        ranked = self._frame.scores.get(term)
        if ranked is not None:
            return ranked
        assert not isinstance(term, Fusion), "a fusion is returned only where it ranks"
        field = term.target if isinstance(term, Distance) else term.field
        return self._scores.value(term, self._rows(field.var), self._frame.variables[field.var])

    def column(self, name: str) -> pa.Array:
        """Rows in flight have no result columns."""
        raise KeyError(name)
