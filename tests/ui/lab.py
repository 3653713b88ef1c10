"""A small research lab as a graph with a history: what the page is tested on, and what its pictures show."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import omnigraph as og

SCHEMA = """\
// Who works on what, and what came of it.
node Person @description("A member of the lab") {
  handle: String @key
  name: String
  role: enum(professor, postdoc, student, engineer)?
  age: I32?
  city: String?
  bio: String? @index
  @range(age, 0..150)
}
node Project {
  slug: String @key
  title: String
  budget: F64?
  active: Bool?
}
node Paper {
  slug: String @key
  title: String
  abstract: String? @index
  published: Date?
  citations: I32?
}
edge Mentors: Person -> Person { since: Date? }
edge WorksOn: Person -> Project @card(0..4) { hours: I32? }
edge Wrote: Person -> Paper
edge Cites: Paper -> Paper
"""
QUERIES = """\
query mentees($handle: String) @description("Whom a person mentors, directly or through others") {
  match { $p: Person { handle: $handle }  $p mentors{1,3} $q }
  return { $q.name as name, $q.role as role }
  order { name }
}
"""
FIRST = [
    "Ada", "Grace", "Edsger", "Barbara", "Alan", "Katherine", "Donald", "Frances", "Tony", "Radia", "Niklaus",
    "Hedy", "Dennis", "Sophie", "Ken", "Margaret", "Leslie", "Anita", "Tim", "Joan", "Claude", "Mary",
    "Robin", "Shafi",
]  # fmt: skip
LAST = ["Lovelace", "Hopper", "Moreau", "Lind", "Okafor", "Tanaka", "Silva", "Novak"]
CITIES = ["Zurich", "Lisbon", "Kyoto", "Bergen", "Montreal"]
TOPICS = [
    "graph merging", "vector search", "query planning", "columnar storage", "version control", "stream joins",
    "text ranking", "type systems",
]  # fmt: skip
TITLES = ["On", "Notes on", "Fast", "Practical"]
ROLES = ["professor", "postdoc", "student", "engineer"]


def make_lab(place: Path) -> Path:
    """Make the graph, with a few commits of two actors and three branches."""
    with og.init(place, schema=SCHEMA) as graph:
        graph.load(_rows(), mode="append", actor="ann")
        for actor, handle, role in (("ben", "alan", "engineer"), ("ann", "sophie", "professor")):
            graph.mutate(_set_role(handle, role), actor=actor)
        graph.branches.create("draft/roles", actor="ben")
        graph.branches.create("import/spring", actor="ann")
        _write_branches(graph)
        graph.merge("import/spring", actor="ann")
    return place


def _write_branches(graph: og.Graph) -> None:
    """Write to both branches, and on main what contradicts one of them."""
    draft: dict[str, Any] = {"branch": "draft/roles", "actor": "ben"}
    graph.mutate(_set_role("ada", "postdoc"), **draft)
    graph.mutate(
        'query q() { update Person set { age: 41, city: "Bergen" } where handle = "grace" }', **draft
    )
    graph.mutate('query q() { insert Project { slug: "atlas", title: "Atlas", budget: 12000.0 } }', **draft)
    graph.mutate('query q() { insert WorksOn { from: "ada", to: "atlas", hours: 8 } }', **draft)
    graph.mutate('query q() { update Person set { age: 40 } where handle = "grace" }', actor="ann")
    spring: dict[str, Any] = {"branch": "import/spring", "actor": "ann"}
    graph.mutate('query q() { insert Person { handle: "new", name: "Newt Ito", role: "student" } }', **spring)


def _set_role(handle: str, role: str) -> str:
    return f'query q() {{ update Person set {{ role: "{role}" }} where handle = "{handle}" }}'


def _rows() -> dict[str, list[dict[str, Any]]]:
    chance = random.Random(7)
    handles = [name.lower() for name in FIRST]
    people = [
        {
            "handle": name.lower(),
            "name": f"{name} {LAST[at % len(LAST)]}",
            "role": ROLES[min(3, at // 3)] if at < 9 else chance.choice(ROLES[1:]),
            "age": 24 + chance.randrange(40),
            "city": chance.choice(CITIES),
            "bio": f"Works on {chance.choice(TOPICS)} and {chance.choice(TOPICS)}.",
        }
        for at, name in enumerate(FIRST)
    ]
    projects = [
        {
            "slug": topic.replace(" ", "-"),
            "title": topic.title(),
            "budget": 1000.0 * chance.randrange(5, 90),
            "active": True,
        }
        for topic in TOPICS[:5]
    ]
    papers = [
        {
            "slug": f"p{number:02}",
            "title": f"{chance.choice(TITLES)} {TOPICS[number % len(TOPICS)]}",
            "abstract": f"We study {TOPICS[number % len(TOPICS)]} and how it meets {chance.choice(TOPICS)}.",
            "published": f"20{18 + number % 8}-0{1 + number % 9}-11",
            "citations": chance.randrange(120),
        }
        for number in range(22)
    ]
    mentors = [
        {"from": handles[at // 3], "to": handles[at], "since": f"20{10 + at % 14}-09-01"}
        for at in range(3, len(handles))
    ]
    works = [
        {"from": handle, "to": projects[at % 5]["slug"], "hours": chance.randrange(4, 38)}
        for at, handle in enumerate(handles)
    ]
    wrote = [
        {"from": author, "to": paper["slug"]}
        for paper in papers
        for author in chance.sample(handles, chance.randrange(1, 4))
    ]
    cites = [
        {"from": papers[at]["slug"], "to": papers[chance.randrange(at)]["slug"]}
        for at in range(4, len(papers))
    ]
    return {
        "Person": people, "Project": projects, "Paper": papers,
        "Mentors": mentors, "WorksOn": works, "Wrote": wrote, "Cites": cites,
    }  # fmt: skip
