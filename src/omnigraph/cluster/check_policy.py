"""Check a policy bundle for the scope that it is bound to."""

from __future__ import annotations

from importlib.util import find_spec

from omnigraph.cluster.addresses import CLUSTER, name_of
from omnigraph.cluster.config import PolicyDeclaration
from omnigraph.cluster.diagnostics import Findings, sentences
from omnigraph.cluster.source_files import SourceFile
from omnigraph.errors import OmnigraphError
from omnigraph.policy.actions import Kind
from omnigraph.policy.policy import Policy
from omnigraph.policy.read_bundle import parse_bundle


def check_policy(policy: PolicyDeclaration, file: SourceFile, findings: Findings) -> None:
    """Note what is wrong with a bundle; Cedar looks at it as well where it is installed."""
    kind = Kind.SERVER if policy.bindings == (CLUSTER,) else Kind.GRAPH
    try:
        bundle = parse_bundle(file.data.decode(), file.shown, kind)
        if find_spec("cedarpy") is not None:
            Policy(bundle, graph=name_of(policy.bindings[0]) if policy.bindings else "")
    except UnicodeDecodeError:
        findings.add("policy_invalid", policy.file.path, f"'{file.shown}' is not UTF-8", policy.file.place)
    except OmnigraphError as error:
        for message, place in sentences(error):
            findings.add("policy_invalid", policy.file.path, message, place or policy.file.place)
