"""`omnigraph algorithm`: compute a value for every node of a graph."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any, get_type_hints

import typer

from omnigraph import graph
from omnigraph.cli.addressing import Place, echo_write, resolve_actor, resolve_graph
from omnigraph.cli.command_groups import Group, new_app
from omnigraph.cli.options import AsJson, Branch, Commit, EngineBySize, Message, Time, Version, resolve_time
from omnigraph.cli.output import print_note
from omnigraph.cli.result_output import Form, Output, choose_format, write_result
from omnigraph.errors import BadRequest
from omnigraph.query.algorithms.algorithm_request import (
    AlgorithmOptions,
    AlgorithmResult,
    WrittenProperty,
)
from omnigraph.query.algorithms.calls import Algorithms

Compute = Callable[..., AlgorithmResult]
"""Calls one algorithm, with the options that all of them take and with its own."""

_FLAGS = frozenset({"--distinct", "--json", "--yes", "--quiet", "--debug", "-h", "--help"})
"""Options without a value."""


_FILTER = re.compile(r"((?:node:|edge:)?[A-Za-z0-9_]+)\s*:\s*(.+)", re.DOTALL)


class Direction(StrEnum):
    """Which way edges are walked."""

    OUT = "out"
    IN = "in"
    BOTH = "both"


class AlgorithmGroup(Group):
    """Takes options before the name of the algorithm as well as after it."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        before = ["", *args]
        for at, word in enumerate(args):
            takes_value = before[at].startswith("-") and "=" not in before[at] and before[at] not in _FLAGS
            if word in self.commands and not takes_value:
                return super().parse_args(ctx, [word, *args[:at], *args[at + 1 :]])
        return super().parse_args(ctx, args)


app = new_app(cls=AlgorithmGroup)


@app.callback()
def algorithm() -> None:
    """Compute a value for every node, such as its rank, and print it or write it to a property."""


def _run_algorithm(
    compute: Callable[[Algorithms, AlgorithmOptions], AlgorithmResult],
    place: Place = None,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", help="Only this node type; may be repeated.", metavar="TYPE"),
    ] = None,
    edge: Annotated[
        list[str] | None,
        typer.Option("--edge", help="Only this edge type; may be repeated.", metavar="TYPE"),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            help="Only rows that pass, like `Person: age >= 30`; may be repeated.",
            metavar="TYPE:COMPARISON",
        ),
    ] = None,
    branch: Branch = None,
    commit: Commit = None,
    version: Version = None,
    time: Time = None,
    write: Annotated[
        str | None,
        typer.Option("--write", help="Write the values to this property, too.", metavar="TYPE.PROPERTY"),
    ] = None,
    onto: Annotated[
        str | None,
        typer.Option("--onto", help="The branch to write to; the one that is read.", metavar="BRANCH"),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", help="Create that branch from this one, if missing.", metavar="BRANCH"),
    ] = None,
    message: Message = None,
    engine: EngineBySize = "auto",
    form: Form = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Compute, print and write the values; its parameters are the options that all algorithms share."""
    uri = resolve_graph(place=place)
    chosen = choose_format(form, output, as_json=as_json)
    shared: AlgorithmOptions = {
        "nodes": node or None,
        "edges": edge or None,
        "where": _parse_filters(where or ()),
        "branch": branch,
        **resolve_time(commit, time),
        "version": version,
        "write_to": write,
        "onto": onto,
        "from_": from_,
        "actor": resolve_actor(),
        "message": message,
        "engine": engine,
    }
    with graph.open(uri, read_only=write is None) as opened:
        result = compute(opened.algorithms, shared)
        uri = opened.uri
    write_result(result, chosen, output)
    if result.written is not None:
        print_note(_describe_destination(result.written))
        echo_write("algorithm", uri)


def _parse_filters(given: Sequence[str]) -> dict[str, list[str]]:
    """The comparisons by type; a type may be written as `node:Name` or `edge:Name`."""
    found: dict[str, list[str]] = {}
    for text in given:
        match = _FILTER.fullmatch(text.strip())
        if match is None:
            raise BadRequest(f"'{text}' is not TYPE:COMPARISON", remedy="write it like 'Person: age >= 30'")
        found.setdefault(match[1], []).append(match[2])
    return found


def _describe_destination(written: WrittenProperty) -> str:
    goal = f"{written.type}.{written.property} on branch {written.branch}"
    if written.commit is None:
        return f"nothing to write: {goal} has these values already"
    return f"wrote {written.rows} values to {goal} in commit {written.commit.id}"


def _list_parameters(function: Callable[..., object], skip: int) -> list[inspect.Parameter]:
    """The parameters of a function after the first ones, with their annotations as values."""
    hints = get_type_hints(function, include_extras=True)
    found = list(inspect.signature(function).parameters.values())[skip:]
    return [one.replace(annotation=hints[one.name]) for one in found]


def _make_command(compute: Compute) -> Compute:
    """Make a command of an algorithm: its own options, then those that all algorithms share."""
    own, shared = _list_parameters(compute, 2), _list_parameters(_run_algorithm, 1)

    def command(**options: Any) -> None:
        chosen = {one.name: options.pop(one.name) for one in own}
        _run_algorithm(lambda algorithms, how: compute(algorithms, how, **chosen), **options)

    # Typer reads the options of a command from its signature; the graph is the first argument.
    parameters = [shared[0], *own, *shared[1:]]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__doc__ = compute.__doc__
    app.command(name=compute.__name__.replace("_", "-"))(command)
    return compute


@_make_command
def pagerank(
    algorithms: Algorithms,
    how: AlgorithmOptions,
    damping: Annotated[float, typer.Option("--damping", help="How likely a walk goes on.")] = 0.85,
    tolerance: Annotated[float, typer.Option("--tolerance", help="Stop at a change below this.")] = 1e-9,
    max_iterations: Annotated[
        int, typer.Option("--max-iterations", help="Rounds at most.", metavar="N")
    ] = 100,
    direction: Annotated[
        Direction, typer.Option("--direction", help="Which way edges are walked.")
    ] = Direction.OUT,
    weight: Annotated[
        str | None,
        typer.Option("--weight", help="The property to choose among edges by.", metavar="PROPERTY"),
    ] = None,
) -> AlgorithmResult:
    """Rank every node by the edges that lead to it."""
    return algorithms.pagerank(
        damping=damping,
        tolerance=tolerance,
        max_iterations=max_iterations,
        direction=direction.value,
        weight=weight,
        **how,
    )


@_make_command
def connected_components(algorithms: Algorithms, how: AlgorithmOptions) -> AlgorithmResult:
    """Number the components: nodes that edges connect, whichever way they lead."""
    return algorithms.connected_components(**how)


@_make_command
def label_propagation(
    algorithms: Algorithms,
    how: AlgorithmOptions,
    max_iterations: Annotated[
        int, typer.Option("--max-iterations", help="Rounds at most.", metavar="N")
    ] = 10,
) -> AlgorithmResult:
    """Number the communities: nodes that are close to each other."""
    return algorithms.label_propagation(max_iterations=max_iterations, **how)


@_make_command
def shortest_paths(
    algorithms: Algorithms,
    how: AlgorithmOptions,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", help="A node to begin at, by its id; may be repeated.", metavar="ID"),
    ] = None,
    direction: Annotated[
        Direction, typer.Option("--direction", help="Which way edges are walked.")
    ] = Direction.OUT,
    weight: Annotated[
        str | None, typer.Option("--weight", help="The property to add up.", metavar="PROPERTY")
    ] = None,
) -> AlgorithmResult:
    """Compute the distance of every node from the nearest source."""
    return algorithms.shortest_paths(source or (), direction=direction.value, weight=weight, **how)


@_make_command
def triangle_count(algorithms: Algorithms, how: AlgorithmOptions) -> AlgorithmResult:
    """Count the triangles that every node is in."""
    return algorithms.triangle_count(**how)


@_make_command
def degree(
    algorithms: Algorithms,
    how: AlgorithmOptions,
    direction: Annotated[
        Direction, typer.Option("--direction", help="Which edges are counted.")
    ] = Direction.BOTH,
    distinct: Annotated[bool, typer.Option("--distinct", help="Count neighbours instead of edges.")] = False,
) -> AlgorithmResult:
    """Count the edges of every node."""
    return algorithms.degree(direction=direction.value, distinct=distinct, **how)
