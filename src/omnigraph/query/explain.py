"""The steps of a query, as text and as JSON."""

from __future__ import annotations

from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.query.request import QueryStep


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """The steps of a query in the order they ran, with the rows each gave and how long it took.

    The time of a step includes that of the steps inside it.
    """

    query_name: str
    steps: tuple[QueryStep, ...]
    rows: int
    milliseconds: float

    def text(self) -> str:
        """The steps as a table."""
        lines = [_line(step) for step in self.steps]
        width = max((len(line) for line in lines), default=0)
        body = [
            f"{line:<{width}}  {'' if step.rows is None else step.rows:>10}  {step.milliseconds:>9.2f} ms"
            for line, step in zip(lines, self.steps, strict=True)
        ]
        total = f"{self.rows} {'row' if self.rows == 1 else 'rows'} in {self.milliseconds:.2f} ms"
        return "\n".join([f"{self.query_name}", *body, total])

    def to_json(self) -> dict[str, Any]:
        """The steps as a script reads them."""
        return {
            "query_name": self.query_name,
            "steps": [
                {
                    "step": step.name,
                    "detail": step.detail,
                    "how": step.how,
                    "rows": step.rows,
                    "milliseconds": round(step.milliseconds, 3),
                    "depth": step.depth,
                }
                for step in self.steps
            ],
            "rows": self.rows,
            "milliseconds": round(self.milliseconds, 3),
        }

    def __repr__(self) -> str:
        return self.text()


def _line(step: QueryStep) -> str:
    detail = f" {step.detail}" if step.detail else ""
    how = f" ({step.how})" if step.how else ""
    return f"{'  ' * step.depth}{step.name}{detail}{how}"
