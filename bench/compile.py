"""How long a query text takes to become a plan, and how long a text seen before."""

from __future__ import annotations

import ast
import json
import statistics
from collections.abc import Callable

from bench.measure import AGAIN, OURS, QUICK, SHORT, WHOLE, Figure, Result, time_in_turns
from omnigraph.lang.query.compile import CompiledRead, QueryCache, check_query, compile_query
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.query.planner import plan_read
from omnigraph.lang.query.resolved import ResolvedRead
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.source import Source

SCHEMA = """
node Person {
  handle: String @key
  age: I32?
  role: enum(dev, lead, ops)?
}
node Team {
  slug: String @key
  title: String
}
edge Mentors: Person -> Person { since: I32? }
edge MemberOf: Person -> Team
"""
QUERY = """query teams_of_mentors($handle: String, $since: I32) {
  match {
    $p: Person { handle: $handle }
    $p $m:mentors $q
    $m.since >= $since
    optional { $q memberOf $t  $t.title contains "x" }
    not { $q mentors $p }
  }
  return { $q.handle as mentor, $t.slug as team, $q.age + 1 as next_age }
  order { mentor, team desc } limit 20
}
"""
# A Python function of the same length, for Python's own parser, and the same facts as JSON.
PYTHON = """def teams_of_mentors(handle, since):
    rows = [
        p for p in persons
        if p.handle == handle
        and p.mentors.since >= since
        and (p.member is None or "x" in p.member.title)
        and not p.mentors.mentors(p)]
    found = [(q.handle, q.team.slug, q.age + 1) for q in rows]
    found.sort(key=lambda row: (row[0], -row[1]))
    return found[:20]
"""
DOCUMENT = json.dumps(
    {
        "match": [["p", "Person", {"handle": "$h"}], ["p", "m", "mentors", "q"], ["m.since", ">=", "$since"]],
        "optional": [["q", "memberOf", "t"], ["t.title", "contains", "x"]],
        "not": [["q", "mentors", "p"]],
        "return": {"mentor": "q.handle", "team": "t.slug", "next_age": ["q.age", "+", 1]},
        "order": [["mentor", "asc"], ["team", "desc"]],
        "limit": 20,
    }
)  # fmt: skip


ALLOWED, ALLOWED_SECONDS = "1 ms", 0.001
PLANS = {WHOLE: (50, 100), QUICK: (20, 50), SHORT: (3, 2)}
"""Rounds, and calls in each."""


def run(size: str) -> Result:
    """Parse, check, plan and all of it together, next to Python's own parsers."""
    catalog = compile_schema(SCHEMA)
    source = Source(QUERY)
    (query,) = parse_queries(source).queries
    resolved = check_query(query, catalog, source)
    assert isinstance(resolved, ResolvedRead)
    cache = QueryCache()
    compiled = cache.compile(QUERY, catalog)
    assert isinstance(compiled, CompiledRead)
    assert compiled == compile_query(QUERY, catalog), "the cache must give what compiling gives"
    ours = {
        "parse": lambda: parse_queries(Source(QUERY)),
        "check": lambda: check_query(query, catalog, source),
        "plan": lambda: plan_read(resolved),
        "compile": lambda: compile_query(QUERY, catalog),
        "compile, seen before": lambda: cache.compile(QUERY, catalog),
    }
    tasks: dict[tuple[str, str], Callable[[], object]] = {(name, OURS): task for name, task in ours.items()}
    tasks["compile", AGAIN] = ours["compile"]
    tasks["compile", "python: ast.parse"] = lambda: ast.parse(PYTHON)
    tasks["compile", "python: json.loads"] = lambda: json.loads(DOCUMENT)
    times = time_in_turns(tasks, *PLANS[size])
    return Result(
        times=times,
        figures=(Figure("compile", ALLOWED, statistics.median(times["compile"][OURS]) / ALLOWED_SECONDS),),
        facts={
            "query_bytes": len(QUERY),
            "query_lines": QUERY.count("\n"),
            "python_bytes": len(PYTHON),
            "json_bytes": len(DOCUMENT),
        },
    )
