"""A small deployment that validates, applies and can be edited: what `cluster init` writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from omnigraph.engine.files.output_paths import require_output
from omnigraph.errors import BadRequest

FILES: Mapping[str, str] = {
    "cluster.yaml": """\
# What should exist. `omnigraph cluster plan` shows what would change, `omnigraph cluster apply` does it.
version: 1
metadata: {name: example}

graphs:
  knowledge:
    schema: knowledge.pg
    queries: queries/knowledge/
  tickets:
    schema: tickets.pg
    queries:
      open_tickets: {file: queries/open_tickets.gq}

policies:
  editors: {file: policies/editors.yaml, applies_to: [knowledge]}

pipelines:
  staff:
    sources:
      staff: {format: csv, path: data/staff.csv, options: {header: "true"}}
    transforms:
      - {view: known, query: "select name, topic from staff where topic is not null"}
      - {view: topics, query: select distinct topic from known}
    into:
      - {graph: knowledge, map: staff.map.yaml}
""",
    "staff.map.yaml": """\
version: 1
nodes:
  - {type: Person, view: staff, properties: {name: name, team: team}}
  - {type: Topic, view: topics, properties: {name: topic}}
edges:
  - {type: KnowsAbout, view: known, src: name, dst: topic, id: "concat(name, '|', topic)"}
""",
    "data/staff.csv": """\
name,team,topic
Ann,storage,Lance
Ben,storage,Arrow
Cleo,query,
""",
    "knowledge.pg": """\
node Person {
  name: String @key
  team: String?
}

node Topic {
  name: String @key
}

edge KnowsAbout: Person -> Topic
""",
    "tickets.pg": """\
node Ticket {
  number: I64 @key
  title: String
  done: Bool
}
""",
    "queries/knowledge/people.gq": """\
query people() {
  match { $p: Person }
  return { $p.name, $p.team }
  order { $p.name }
}
""",
    "queries/knowledge/experts.gq": """\
query experts($topic: String) {
  match {
    $t: Topic { name: $topic }
    $p knowsAbout $t
  }
  return { $p.name }
}
""",
    "queries/open_tickets.gq": """\
query open_tickets() {
  match {
    $t: Ticket { done: false }
  }
  return { $t.number, $t.title }
  order { $t.number }
}
""",
    "policies/editors.yaml": """\
version: 1
kind: graph
groups:
  editors: [act-ann]
rules:
  - id: editors-do-all
    allow:
      actors: {group: editors}
      actions: [read, export, change, invoke_query, schema_apply, branch_create, branch_merge, branch_delete]
""",
    ".gitignore": """\
# What a cluster stores beside its files, where `storage` says nothing else.
__cluster/
graphs/
""",
}


def write_example(directory: Path) -> list[Path]:
    """Write the example into a new or empty directory, and return its files."""
    require_output(directory)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise BadRequest(
            f"'{directory}' is not empty", remedy="name a new directory for the files of the cluster"
        )
    written = []
    for name, text in FILES.items():
        path = directory / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as failure:
            raise BadRequest(f"cannot write '{path}': {failure.strerror}") from failure
        written.append(path)
    return written
