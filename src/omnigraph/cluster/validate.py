"""Check a configuration without touching any graph or ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omnigraph.cluster.config import FILE
from omnigraph.cluster.desired import Desired, load_desired
from omnigraph.cluster.diagnostics import Findings
from omnigraph.deferred_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Validation:
    """What `cluster validate` found."""

    directory: Path
    desired: Desired | None
    findings: Findings

    @property
    def ok(self) -> bool:
        """Whether the configuration can be planned."""
        return self.findings.ok

    def to_json(self) -> dict[str, Any]:
        """The result as a script reads it."""
        desired = self.desired
        resources = () if desired is None else desired.resources.values()
        return {
            "ok": self.ok,
            "config_dir": str(self.directory),
            "config_file": str(self.directory / FILE),
            "resource_digests": {} if desired is None else desired.digests(),
            "resources": [one.to_json() for one in resources],
            "dependencies": [] if desired is None else [one.to_json() for one in desired.dependencies],
            "diagnostics": self.findings.to_json(),
        }


def validate(directory: Path) -> Validation:
    """Load everything that a configuration names, and check it."""
    findings = Findings()
    desired = load_desired(directory, findings)
    for graph in () if desired is None else desired.config.graphs.values():
        if not graph.blobs:
            message = f"graph '{graph.id}' accepts no external blobs: it has no `external_blobs.allow`"
            path = f"graphs.{graph.id}"
            findings.add("external_blob_ingress_default_deny", path, message, graph.place)
    return Validation(directory, desired, findings)
