"""A deployment with two graphs and a pipeline `crm` that reads people from a CSV file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from omnigraph.cluster.applied_pipelines import AppliedPipelines
from omnigraph.pipeline.declared.declaration import Pipeline
from tests.cluster.deployment import Deployment
from tests.pipeline.declared.world import SCHEMA

HEAD = """\
version: 1
providers:
  source:
    lake: {kind: files, root: data/}
graphs:
  team: {schema: team.pg}
  other: {schema: team.pg}
"""
PEOPLE = (
    "{provider: lake, path: people.csv, format: csv, options: {header: 'true'}, "
    "watermark: {column: updated, type: date}}"
)
MAP = "nodes: [{type: Person, view: people, properties: {email: email, age: cast(age as int)}}]\n"


def pipeline_text(
    targets: Iterable[str] = ("team",), mode: str = "append", more: Mapping[str, str] | None = None
) -> str:
    """The declaration of the pipeline, as the end of a `cluster.yaml`."""
    into = "".join(f"      - {{graph: {one}, mode: {mode}, map: people.map.yaml}}\n" for one in targets)
    others = "".join(f"    {name}: {value}\n" for name, value in (more or {}).items())
    return f"pipelines:\n  crm:\n    sources:\n      people: {PEOPLE}\n{others}    into:\n{into}"


def new_deployment(folder: Path, text: str | None = None) -> Deployment:
    """A configuration with the pipeline, before anything was applied."""
    made = Deployment(folder)
    made.configure(HEAD + (pipeline_text() if text is None else text))
    made.write("team.pg", SCHEMA)
    made.write("people.map.yaml", MAP)
    made.write("data/people.csv", "email,age,updated\na@x,1,2024-01-01\n")
    return made


def applied_pipeline(deployment: Deployment, name: str = "crm") -> Pipeline:
    """The pipeline as it was applied."""
    return AppliedPipelines.open(str(deployment.folder)).read(name)
