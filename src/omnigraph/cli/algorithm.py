"""`omnigraph algorithm`: find something out about every node of a graph."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from omnigraph import graph
from omnigraph.cli.addressing import Place, echo_write, resolve_actor, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson, EngineBySize
from omnigraph.cli.output import print_note
from omnigraph.cli.query_options import Branch, Commit, Time, Version
from omnigraph.cli.result_output import Form, Output, choose_format, write_result
from omnigraph.errors import BadRequest
from omnigraph.query.algorithms.algorithm_request import WrittenProperty


class Name(StrEnum):
    """The algorithms, as the command line spells them."""

    PAGERANK = "pagerank"
    COMPONENTS = "connected-components"
    LABELS = "label-propagation"
    PATHS = "shortest-paths"
    TRIANGLES = "triangle-count"
    DEGREE = "degree"


class Direction(StrEnum):
    """Which way edges are walked."""

    OUT = "out"
    IN = "in"
    BOTH = "both"


OPTIONS: dict[Name, tuple[str, ...]] = {
    Name.PAGERANK: ("damping", "tolerance", "max_iterations"),
    Name.COMPONENTS: (),
    Name.LABELS: ("max_iterations",),
    Name.PATHS: ("sources", "direction", "weight"),
    Name.TRIANGLES: (),
    Name.DEGREE: ("direction", "distinct"),
}
"""What each takes of the options that not all of them take."""

app = new_app()


@app.command()
def algorithm(
    name: Annotated[Name, typer.Argument(help="What to find out.", metavar="NAME")],
    place: Place = None,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", help="Only this node type; may be repeated.", metavar="TYPE"),
    ] = None,
    edge: Annotated[
        list[str] | None,
        typer.Option("--edge", help="Only this edge type; may be repeated.", metavar="TYPE"),
    ] = None,
    branch: Branch = None,
    commit: Commit = None,
    version: Version = None,
    time: Time = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source", help="A node that shortest paths begin at, by its id; may be repeated.", metavar="ID"
        ),
    ] = None,
    direction: Annotated[
        Direction | None,
        typer.Option("--direction", help="Which way edges are walked (paths) or counted (degree)."),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option("--weight", help="The property that shortest paths add up.", metavar="PROPERTY"),
    ] = None,
    distinct: Annotated[
        bool, typer.Option("--distinct", help="Let degree count neighbours instead of edges.")
    ] = False,
    damping: Annotated[
        float | None, typer.Option("--damping", help="How likely a walk goes on (pagerank); 0.85.")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option("--tolerance", help="The change at which pagerank ends; 1e-9.")
    ] = None,
    max_iterations: Annotated[
        int | None,
        typer.Option("--max-iterations", help="Rounds at most: 100 of pagerank, 10 of labels.", metavar="N"),
    ] = None,
    write: Annotated[
        str | None,
        typer.Option("--write", help="Give the values to this property, too.", metavar="TYPE.PROPERTY"),
    ] = None,
    onto: Annotated[
        str | None,
        typer.Option("--onto", help="The branch to write to; the one that is read.", metavar="BRANCH"),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", help="Make that branch from this one, if missing.", metavar="BRANCH"),
    ] = None,
    engine: EngineBySize = "auto",
    form: Form = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Find something out about every node, such as its rank, and print it or write it to a property.

    The algorithms are pagerank, connected-components, label-propagation, shortest-paths, triangle-count and
    degree.
    """
    uri = resolve_graph(place=place)
    chosen = choose_format(form, output, as_json=as_json)
    own = {
        "sources": source,
        "direction": None if direction is None else direction.value,
        "weight": weight,
        "distinct": distinct or None,
        "damping": damping,
        "tolerance": tolerance,
        "max_iterations": max_iterations,
    }
    with graph.open(uri, read_only=write is None) as opened:
        asked = getattr(opened.algorithms, name.value.replace("-", "_"))
        found = asked(
            **_taken(name, own),
            nodes=node or None,
            edges=edge or None,
            branch=branch,
            commit=commit,
            version=version,
            time=time,
            write_to=write,
            onto=onto,
            from_=from_,
            actor=resolve_actor(),
            engine=engine,
        )
        uri = opened.uri
    write_result(found, chosen, output)
    if found.written is not None:
        print_note(_text(found.written))
        echo_write("algorithm", uri)


def _taken(name: Name, given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, all of which must be options of the algorithm."""
    taken = {option: value for option, value in given.items() if value is not None}
    for option in taken:
        if option not in OPTIONS[name]:
            takes = ", ".join(map(_spelled, OPTIONS[name]))
            raise BadRequest(
                f"{_spelled(option)} is not an option of {name}",
                remedy=f"it takes: {takes}" if takes else "leave it out",
            )
    if name is Name.PATHS:
        taken.setdefault("sources", ())
    return taken


def _spelled(option: str) -> str:
    return f"--{option.removesuffix('s') if option == 'sources' else option.replace('_', '-')}"


def _text(written: WrittenProperty) -> str:
    goal = f"{written.type}.{written.property} on branch {written.branch}"
    if written.commit is None:
        return f"nothing to write: {goal} has these values already"
    return f"wrote {written.rows} values to {goal} in commit {written.commit.id}"
