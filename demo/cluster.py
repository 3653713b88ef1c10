"""The tour of `make demo ARGS=--cluster`: a deployment declared in files, planned, applied and served."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from demo.run import Tour

FOLDER = "brain"
ME = "act-ann"
PEOPLE = (
    {"type": "Person", "data": {"name": "Ada", "team": "engines"}},
    {"type": "Person", "data": {"name": "Grace", "team": "compilers"}},
    {"type": "Topic", "data": {"name": "loops"}},
    {"edge": "KnowsAbout", "from": "Ada", "to": "loops"},
)
DONE = "  done: Bool\n"


def give_cluster_tour(tour: Tour) -> None:
    """All stations, in order, from an empty folder."""
    declare(tour)
    with (
        tour.exported("OMNIGRAPH_SERVER_BEARER_TOKENS_FILE", "tokens.json"),
        tour.serve("--cluster", ".", "--reload") as url,
    ):
        ask(tour, url)
        change_schema(tour)
        tour.say("The server reloads what was applied while it goes on answering. Now it is asked to end.")
    delete(tour)


def declare(tour: Tour) -> None:
    tour.say("A deployment is a folder of files. This one declares two graphs, queries and a policy.")
    tour.omnigraph("cluster", "init", FOLDER)
    tour.show(f"cd {FOLDER}")
    os.chdir(FOLDER)
    tour.cat("cluster.yaml")
    tour.omnigraph("cluster", "validate")
    tour.say("The ledger records what was applied. The plan is the difference, and apply makes it real.")
    tour.omnigraph("cluster", "import")
    tour.omnigraph("cluster", "plan")
    tour.omnigraph("cluster", "apply", "--as", ME)
    lines = "".join(json.dumps(record) + "\n" for record in PEOPLE)
    Path("people.jsonl").write_text(lines, encoding="utf-8")
    tour.say("Rows are not declared: they are loaded like those of any graph.")
    load = ("--data", "people.jsonl", "--mode", "append", "--as", ME, "--quiet")
    tour.omnigraph("load", "graphs/knowledge.omni", *load)
    Path("tokens.json").write_text(json.dumps({ME: secrets.token_hex(8)}), encoding="utf-8")


def ask(tour: Tour, url: str) -> None:
    tour.say("The server knows the stored queries that were applied.")
    token = json.loads(Path("tokens.json").read_text(encoding="utf-8"))[ME]
    with tour.exported("OMNIGRAPH_BEARER_TOKEN", token):
        tour.omnigraph("query", "people", "--server", url, "--graph", "knowledge")


def change_schema(tour: Tour) -> None:
    tour.say("A schema is edited in its file. The plan shows the steps in words, and what they affect.")
    schema = Path("tickets.pg")
    schema.write_text(
        schema.read_text(encoding="utf-8").replace(DONE, f"{DONE}  due: Date?\n"), encoding="utf-8"
    )
    tour.omnigraph("cluster", "plan")
    tour.omnigraph("cluster", "apply", "--as", ME)


def delete(tour: Tour) -> None:
    tour.say("Taking a graph out of the file deletes nothing until a person approves exactly that.")
    kept, _, rest = Path("cluster.yaml").read_text(encoding="utf-8").partition("  tickets:\n")
    text = f"{kept.rstrip()}\n\npolicies:{rest.partition('policies:')[2]}"
    Path("cluster.yaml").write_text(text, encoding="utf-8")
    tour.omnigraph("cluster", "apply", "--as", ME)
    tour.omnigraph("cluster", "approve", "graph.tickets", "--as", ME)
    tour.omnigraph("cluster", "apply", "--as", ME)
    tour.omnigraph("cluster", "status")
