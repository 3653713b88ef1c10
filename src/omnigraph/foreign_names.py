"""Members that users of pandas, DuckDB, NetworkX and git look for, and what they are here."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

_WRITE = "write `with graph.write() as tx:`, and inside `tx.insert(...)`, `tx.insert_edge(...)`"
_QUERY = "read with `graph.query(...)`, write with `graph.mutate(...)`"
_BRANCH = "nothing is checked out: give `branch=` to `query`, `mutate`, `load` and `write`"
_COMMIT = "every write is a commit: `graph.commits` lists them, `message=` gives its message"

GRAPH_MEMBERS = {
    "execute": _QUERY,
    "sql": _QUERY,
    "run": _QUERY,
    "cypher": _QUERY,
    "insert": _WRITE,
    "add_node": _WRITE,
    "add_nodes_from": "load many rows with `graph.load(rows, type=..., mode=...)`",
    "add_edge": _WRITE,
    "add_edges_from": "load many rows with `graph.load(rows, type=..., mode=...)`",
    "upsert": "`graph.load(rows, type=..., mode='merge')` replaces rows that exist and adds the others",
    "update": _QUERY,
    "delete": _QUERY,
    "commit": _COMMIT,
    "checkout": _BRANCH,
    "switch": _BRANCH,
    "branch": "make one with `graph.branches.create(name)`",
    "nodes": "read rows with `graph.snapshot().rows(type)`; types are in `graph.schema.nodes`",
    "edges": "read rows with `graph.snapshot().rows(type)`; types are in `graph.schema.edges`",
    "pagerank": "algorithms are in `graph.algorithms`",
    "to_pandas": "a result is a DataFrame: `graph.query(...).to_pandas()`",
}
RESULT_MEMBERS = {
    **dict.fromkeys(
        ("head", "tail", "loc", "iloc", "groupby", "sort_values", "merge", "describe", "df", "fetchdf"),
        "turn it into a DataFrame first: `.to_pandas()`",
    ),
    **dict.fromkeys(
        ("fetchall", "fetchone", "fetchmany", "data"), "iterate over it, or take all rows: `.rows()`"
    ),
    "pl": "turn it into a DataFrame first: `.to_polars()`",
    "arrow": "the Arrow table is `.table`",
    "to_arrow": "the Arrow table is `.table`",
    "fetch_arrow_table": "the Arrow table is `.table`",
    "to_dicts": "take all rows: `.rows()`",
}


class ForeignNames:
    """A class that answers a member of another tool with what is meant here."""

    __slots__ = ()
    _foreign: ClassVar[dict[str, str]] = {}

    if not TYPE_CHECKING:  # a type checker must go on refusing members that are not there

        def __getattr__(self, name: str) -> object:
            """Raise the usual error, with a hint where there is one."""
            hint = self._foreign.get(name) if not name.startswith("_") else None
            if hint is None:
                return object.__getattribute__(self, name)  # fails again, in its own words
            text = f"{type(self).__name__!r} object has no attribute {name!r}\nhelp: {hint}"
            raise AttributeError(text, name=name, obj=self)


class GraphNames(ForeignNames):
    """The members that are looked for in a graph."""

    __slots__ = ()
    _foreign = GRAPH_MEMBERS


class ResultNames(ForeignNames):
    """The members that are looked for in a result."""

    __slots__ = ()
    _foreign = RESULT_MEMBERS
