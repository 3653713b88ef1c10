"""A pipeline against files, graphs and schemas, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import PipelineInvalid
from omnigraph.pipeline.declared.check import check
from tests.pipeline.declared.world import declare_pipeline, graph_at

WRONG = """
- graph: team
  map:
    nodes:
      - {type: Persn, view: people}
      - {type: Person, view: people, properties: {agee: age}}
      - {type: Person, view: people, properties: {email: email, age: cast(age as string)}}
      - {type: Firm, view: people}
      - {type: Strict, view: people, properties: {no: cast(a as decimal(9))}}
    edges:
      - {type: WorksAt, view: people, src: cast(a as int), dst: slug, properties: {since: cast(a as double)}}
      - {type: Sees, view: people, src: cast(a as date), dst: cast(a as bigint)}
- graph: gone
  map: {nodes: [{type: Person, view: people}]}
- graph: other
  branch: draft
  map: {nodes: [{type: Person, view: people}]}
"""
REPORTED = """
pipeline_file_missing there is nothing at '{folder}/nowhere'
pipeline_type_unknown there is no type 'Persn'
pipeline_type_unknown there is no node type 'Persn'
pipeline_property_unknown node type 'Person' has no property 'agee'
pipeline_key_unmapped key property 'email' of node type 'Person' is not mapped
pipeline_property_type property 'age' of type 'Person' is I32?, not string
pipeline_key_unmapped key property 'slug' of node type 'Firm' is not mapped
pipeline_required_unmapped property 'word' of node type 'Strict' must have a value and is not mapped
pipeline_property_type property 'since' of type 'WorksAt' is Date?, not double
pipeline_endpoint_type `src` of edge type 'WorksAt' is no id of a 'Person'
pipeline_endpoint_type `src` of edge type 'Sees' is no id of a 'Strict'
pipeline_target_missing gone
pipeline_target_missing graph 'other' has no branch 'draft'
"""


def test_everything_that_does_not_fit_is_reported(tmp_path: Path) -> None:
    graph_at(tmp_path / "team")
    graph_at(tmp_path / "other")
    pipeline = declare_pipeline(
        tmp_path,
        WRONG,
        sources="more: {format: json, path: nowhere/}\nold: {graph: other, types: [Persn]}",
    )
    with pytest.raises(PipelineInvalid) as caught:
        check(pipeline)
    problems = caught.value.violations
    expected = [
        line.partition(" ") for line in REPORTED.replace("{folder}", str(tmp_path)).strip().splitlines()
    ]
    assert [one.code for one in problems] == [code for code, _, _ in expected]
    assert [
        message for (_, _, message), one in zip(expected, problems, strict=True) if message not in one.message
    ] == []
    assert problems[3].line == 14


def test_what_fits_is_fine(tmp_path: Path) -> None:
    graph_at(tmp_path / "team")
    check(
        declare_pipeline(
            tmp_path,
            """
            - graph: team
              map:
                nodes:
                  - {type: Person, view: people, properties: {email: email, age: cast(age as bigint)}}
                  - {type: Strict, view: people, properties: {no: cast(a as int), word: upper(b)}}
                edges:
                  - {type: Sees, view: people, src: cast(a as int), dst: cast(a as string)}
            """,
        )
    )
