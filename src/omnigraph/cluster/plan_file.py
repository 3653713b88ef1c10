"""A plan stored as JSON: apply runs it only while nothing moved that it was computed on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from omnigraph.cluster.diagnostics import stopped
from omnigraph.cluster.plan import Plan
from omnigraph.cluster.root import decode

VERSION = 1


class _Fence(msgspec.Struct, frozen=True):
    schema_digest: str
    manifest_version: int


class _Stored(msgspec.Struct, frozen=True):
    plan_version: int
    config_digest: str
    state_cas: str | None
    changes: list[dict[str, Any]]
    live: dict[str, _Fence]


def to_stored(plan: Plan) -> dict[str, Any]:
    """Return the members of a stored plan that apply compares; others are for people."""
    return {
        "plan_version": VERSION,
        "config_digest": plan.config_digest,
        "state_cas": plan.state_cas,
        "changes": [change.to_json() for change in plan.changes],
        "live": {graph_id: fence.to_json() for graph_id, fence in plan.fences.items()},
    }


def write_plan(path: Path, plan: Plan) -> None:
    """Store a plan."""
    text = json.dumps(to_stored(plan), indent=2, ensure_ascii=False) + "\n"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as failure:
        message = f"the plan cannot be written: {failure.strerror}"
        raise stopped("invalid_plan_file", str(path), message) from failure


def require_current(path: Path, plan: Plan) -> None:
    """End the command when the configuration, the ledger or a live schema moved; data may move."""
    stored = _read(path)
    moved = [
        what
        for what, differs in (
            ("the configuration", stored.config_digest != plan.config_digest),
            ("the ledger", stored.state_cas != plan.state_cas),
            *(
                (f"the live schema of graph '{graph_id}'", _moved(stored.live.get(graph_id), fence))
                for graph_id, fence in sorted(plan.fences.items())
            ),
        )
        if differs
    ]
    if moved:
        message = f"{', '.join(moved)} moved since the plan was stored; plan again"
        raise stopped("plan_stale", str(path), message)


def _moved(stored: _Fence | None, live: Any) -> bool:
    return stored is None or stored.schema_digest != live.schema_digest


def _read(path: Path) -> _Stored:
    try:
        stored = msgspec.convert(decode(path.read_bytes()), _Stored)
    except OSError as failure:
        message = f"the plan cannot be read: {failure.strerror}"
        raise stopped("invalid_plan_file", str(path), message) from failure
    except msgspec.MsgspecError as error:
        raise stopped("invalid_plan_file", str(path), f"the plan is not valid: {error}") from error
    if stored.plan_version != VERSION:
        raise stopped("invalid_plan_file", str(path), f"the plan has version {stored.plan_version}")
    return stored
