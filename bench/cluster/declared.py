"""A cluster of many graphs with many stored queries."""

from __future__ import annotations

from pathlib import Path

SCHEMA = """\
node Person { name: String @key  age: I32?  city: String? @index }
node Topic { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge Likes: Person -> Topic
"""
QUERY = """\
query q{number}($name: String, $age: I32) {{
  match {{
    $p: Person {{ name: $name }}
    $p knows{{1,3}} $friend
    $friend likes $topic
    $friend.age > $age
  }}
  return {{ $friend.name, $friend.city, count($topic) as topics }}
  order {{ topics desc }}
  limit 20
}}
"""


def declare(folder: Path, graphs: int, queries: int) -> None:
    """Write the files of a cluster whose graphs share the queries evenly, one in each file."""
    lines = ["version: 1", "graphs:"]
    for number in range(graphs):
        name = f"graph-{number}"
        (folder / name).mkdir(parents=True)
        (folder / f"{name}.pg").write_text(SCHEMA, encoding="utf-8")
        for query in range(number, queries, graphs):
            (folder / name / f"q{query}.gq").write_text(QUERY.format(number=query), encoding="utf-8")
        own = f", queries: {name}/" if queries else ""
        lines.append(f"  {name}: {{schema: {name}.pg{own}}}")
    (folder / "cluster.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
