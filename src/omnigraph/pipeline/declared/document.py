"""The normalized declaration: everything that decides what a run does, with all texts inlined.

It is a pipeline file itself, so that a cluster can store it and run it without any other file. Secrets stay
references, and paths stay as they were written: where a file is does not count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.pipeline.declared.declaration import EDGE, NODE, Destination, EntityMap, Pipeline, SparkNeeds
from omnigraph.pipeline.declared.members import Node
from omnigraph.yaml_text import to_yaml_value


def encode_document(
    pipeline: Pipeline, sources: Mapping[str, Any], providers: Mapping[str, Mapping[str, Any]]
) -> str:
    """Return the document of a pipeline; equal declarations have equal texts.

    `sources` are as they were written. `providers` are those that the document itself must have: a cluster
    has them as resources of their own.
    """
    declared = {
        "sources": dict(sources),
        "transforms": [{"view": one.view, "query": one.sql} for one in pipeline.transforms],
        "into": [_destination_to_json(one) for one in pipeline.into],
        "params": dict(pipeline.params),
        "checkpoint": pipeline.checkpoint.value,
        "spark": _needs_to_json(pipeline.spark),
    }
    kept = {name: value for name, value in declared.items() if value}
    whole: dict[str, Any] = {"version": 1, "pipelines": {pipeline.name: kept}}
    if providers:
        whole["providers"] = {"source": {name: dict(one) for name, one in providers.items()}}
    return json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def decode_document(text: str, shown: str) -> Node:
    """Return a stored document as the parser of pipeline files takes it; JSON is YAML as well."""
    return Node(to_yaml_value(json.loads(text)), "", shown)


def _destination_to_json(target: Destination) -> dict[str, Any]:
    return {
        "graph": target.graph,
        "mode": target.mode.value,
        "branch": target.branch,
        "strategy": target.strategy.value,
        "on_conflict": target.on_conflict.value,
        "map": _map_to_json(target.map),
    }


def _map_to_json(entries: Sequence[EntityMap]) -> dict[str, Any]:
    kinds = {"nodes": NODE, "edges": EDGE}
    found = {
        name: [_entry_to_json(one) for one in entries if one.kind == kind] for name, kind in kinds.items()
    }
    return {name: one for name, one in found.items() if one}


def _entry_to_json(entry: EntityMap) -> dict[str, Any]:
    names = ("type", "view", "where", "id", "src", "dst")
    found: dict[str, Any] = {name: getattr(entry, name) for name in names}
    found["properties"] = dict(entry.properties)
    return {name: value for name, value in found.items() if value}


def _needs_to_json(needs: SparkNeeds) -> dict[str, Any]:
    found = {"master": needs.master, "conf": dict(needs.conf), "packages": list(needs.packages)}
    return {name: value for name, value in found.items() if value}
