"""A graph database that lives in a folder or a bucket.

    import omnigraph as og

    with og.init("./team.omni", schema="node Person { handle: String @key }") as graph:
        graph.branches.create("draft")

`init` makes a graph, `open` opens one; both give a `Graph`. Everything that goes wrong is one of `errors`.
"""

from importlib import import_module

TYPE_CHECKING = False  # what `typing` has, which takes longer to import than all of this
if TYPE_CHECKING:
    from omnigraph import errors
    from omnigraph.engine.lineage import Commit
    from omnigraph.graph import Graph, Snapshot, init, open  # noqa: A004
    from omnigraph.progress import Progress, progress_to
    from omnigraph.query.result import Result

__version__ = "0.1.0"

__all__ = [
    "Commit",
    "Graph",
    "Progress",
    "Result",
    "Snapshot",
    "__version__",
    "errors",
    "init",
    "open",
    "progress_to",
]

# Looked up on first use, so that `import omnigraph` alone loads neither Lance nor Arrow, and the command
# begins at once.
_HOMES = {
    "Commit": "omnigraph.engine.lineage",
    "Graph": "omnigraph.graph",
    "Progress": "omnigraph.progress",
    "Result": "omnigraph.query.result",
    "Snapshot": "omnigraph.snapshot",
    "init": "omnigraph.graph",
    "open": "omnigraph.graph",
    "progress_to": "omnigraph.progress",
}

# Hidden from type checkers: to them it would mean that every name exists.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "errors":
            return import_module("omnigraph.errors")
        if name not in _HOMES:
            raise AttributeError(f"module 'omnigraph' has no attribute '{name}'")
        found = getattr(import_module(_HOMES[name]), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
