"""Every command of `omnigraph`: its name, where it lives and one line of help.

`omnigraph --help` prints this table and imports none of the modules it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from omnigraph.deferred_dataclass import dataclass


class Plane(StrEnum):
    """What a command is about; help lists them in this order."""

    DATA = "Data"
    STORAGE = "Storage"
    PIPELINE = "Pipeline"
    CLUSTER = "Cluster"
    LOCAL = "Local"


@dataclass(frozen=True, slots=True)
class Command:
    """A command and the module that is imported when, and only when, it runs."""

    target: str
    """`module:name` of a Typer app: one command in it is that command, several are a group."""
    help: str
    plane: Plane = Plane.DATA


COMMANDS: Mapping[str, Command] = {
    "alias": Command(
        "omnigraph.cli.alias:app", "Run a query that the config file has a name for.", Plane.LOCAL
    ),
    "algorithm": Command("omnigraph.cli.algorithm:app", "Find ranks, components, paths and the like."),
    "blame": Command("omnigraph.cli.blame:app", "List the commits that changed one node or edge."),
    "blob": Command("omnigraph.cli.blob:app", "Read a Blob, or see how large it is."),
    "branch": Command("omnigraph.cli.branch:app", "Create, list, merge and delete branches."),
    "changes": Command("omnigraph.cli.changes:app", "Show what the commits of a branch changed."),
    "cleanup": Command(
        "omnigraph.cli.cleanup:app", "Remove old versions, or show what would go.", Plane.STORAGE
    ),
    "cluster": Command(
        "omnigraph.cli.cluster:app",
        "Declare graphs in files, plan what would change, and apply it.",
        Plane.CLUSTER,
    ),
    "cherry-pick": Command(
        "omnigraph.cli.replay:pick_app", "Take in what one commit changed, in a new commit."
    ),
    "commit": Command("omnigraph.cli.commit:app", "Look at the history of a graph."),
    "completion": Command(
        "omnigraph.cli.completion:app", "Print what a shell needs to complete commands.", Plane.LOCAL
    ),
    "copy": Command(
        "omnigraph.cli.copy:app", "Copy a graph with all branches to another place.", Plane.STORAGE
    ),
    "diff": Command("omnigraph.cli.changes:diff_app", "Show what differs between two moments of a graph."),
    "doctor": Command("omnigraph.cli.doctor:app", "Look for what is out of order in a graph.", Plane.STORAGE),
    "embed": Command("omnigraph.cli.embed:app", "Make vectors that are missing or out of date."),
    "explain": Command(
        "omnigraph.cli.query:explain_app", "Show how a query is carried out, with rows and times."
    ),
    "export": Command("omnigraph.cli.export:app", "Write a graph or some of its types as files."),
    "graphs": Command("omnigraph.cli.graphs:app", "See which graphs a server has."),
    "init": Command("omnigraph.cli.init:app", "Create a new graph with a schema.", Plane.STORAGE),
    "lint": Command("omnigraph.cli.lint:app", "Check a query file against a schema.", Plane.STORAGE),
    "load": Command("omnigraph.cli.load:app", "Load files in one commit."),
    "log": Command("omnigraph.cli.log:app", "List commits, newest first, with what each changed."),
    "login": Command("omnigraph.cli.login:app", "Keep the token of a server.", Plane.LOCAL),
    "logout": Command("omnigraph.cli.login:logout_app", "Forget the token of a server.", Plane.LOCAL),
    "lsp": Command(
        "omnigraph.cli.lsp:app", "Check and complete schemas and queries in an editor.", Plane.LOCAL
    ),
    "mcp": Command("omnigraph.cli.mcp:app", "Offer a graph to a language model, over MCP."),
    "mutate": Command("omnigraph.cli.mutate:app", "Insert, update or delete by a query, in one commit."),
    "optimize": Command(
        "omnigraph.cli.optimize:app", "Keep a graph fast: few fragments, whole indexes.", Plane.STORAGE
    ),
    "pipeline": Command(
        "omnigraph.cli.pipeline:app", "Check, plan and run pipelines that a file declares.", Plane.PIPELINE
    ),
    "policy": Command(
        "omnigraph.cli.policy:app", "Check a policy bundle, and what it decides.", Plane.CLUSTER
    ),
    "profile": Command("omnigraph.cli.profile:app", "Look at the profiles of the config file.", Plane.LOCAL),
    "queries": Command(
        "omnigraph.cli.queries:app", "List the stored queries of a cluster, and check them.", Plane.CLUSTER
    ),
    "query": Command("omnigraph.cli.query:app", "Read by a query, now or in the past."),
    "recover": Command(
        "omnigraph.cli.recover:app", "Finish or undo interrupted writes, or list them.", Plane.STORAGE
    ),
    "repair": Command(
        "omnigraph.cli.repair:app", "Publish tables that were modified outside omnigraph.", Plane.STORAGE
    ),
    "reset": Command(
        "omnigraph.cli.replay:reset_app", "Give a branch the content of an older moment, in a new commit."
    ),
    "revert": Command("omnigraph.cli.replay:app", "Take back what a commit changed, in a new commit."),
    "schema": Command("omnigraph.cli.schema:app", "Show and change the schema of a graph."),
    "serve": Command(
        "omnigraph.cli.serve:app", "Serve a graph, or those of a cluster, over HTTP.", Plane.STORAGE
    ),
    "shell": Command("omnigraph.cli.shell:app", "Ask a graph question after question, at a prompt."),
    "show": Command("omnigraph.cli.log:show_app", "Show a commit and what it changed."),
    "snapshot": Command(
        "omnigraph.cli.snapshot:app", "Show the version and size of every type, now or in the past."
    ),
    "spark": Command("omnigraph.cli.spark:app", "Keep a warm Spark, and see what it needs.", Plane.PIPELINE),
    "sql": Command("omnigraph.cli.sql:app", "Read the types of a graph as tables, with SQL.", Plane.STORAGE),
    "status": Command("omnigraph.cli.log:status_app", "Show a branch at a glance."),
    "tag": Command("omnigraph.cli.tag:app", "Create, list and delete tags: names of commits."),
    "ui": Command("omnigraph.cli.ui:app", "Explore a graph in the browser.", Plane.STORAGE),
    "version": Command(
        "omnigraph.cli.version:app", "Print the version of omnigraph and of its storage format.", Plane.LOCAL
    ),
}
