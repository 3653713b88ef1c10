"""Read and write the ledger: one compare-and-swap at the end of a command."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from omnigraph.cluster.diagnostics import Findings
from omnigraph.cluster.entries import find_mismatched_graphs
from omnigraph.cluster.root import CONTROL, ClusterRoot
from omnigraph.cluster.state import State, StateRejected, cas_of, decode_state, encode_state
from omnigraph.deferred_dataclass import dataclass
from omnigraph.storage.locks import BranchLocks

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_MOVED = "the ledger was changed by another command; nothing was recorded. Run the command again"


@dataclass(frozen=True, slots=True)
class LedgerVersion:
    """The ledger as a command found it."""

    state: State | None
    """None when there is no ledger."""
    cas: str | None = None
    token: str | None = None
    """What the store calls this version."""


def read_ledger(root: ClusterRoot, findings: Findings) -> LedgerVersion:
    """Return the ledger; one that cannot be used ends the command."""
    found = root.objects.read_text_versioned(root.state)
    if found is None:
        return LedgerVersion(None)
    try:
        return LedgerVersion(decode_state(found.text), cas_of(found.text), found.token)
    except StateRejected as rejected:
        findings.stop(rejected.code, root.state.uri, str(rejected))


def require_integrity(state: State, findings: Findings) -> None:
    """End the command when the digest of a graph does not follow from the ledger's own parts."""
    for address in find_mismatched_graphs(state.resources):
        findings.stop(
            "external_blob_policy_digest_mismatch",
            address,
            f"the recorded digest of '{address}' does not follow from the other entries: "
            "the ledger was edited. Restore it, or remove it and run `cluster import`",
        )


def write_ledger(
    root: ClusterRoot, state: State, expected: LedgerVersion, findings: Findings
) -> LedgerVersion:
    """Replace exactly the version that the command started from; another one there ends the command."""
    text = encode_state(state)
    with _exclusion(root):
        found = root.objects.read_text_versioned(root.state)
        if (None if found is None else cas_of(found.text)) != expected.cas:
            findings.stop("state_cas_mismatch", root.state.uri, _MOVED)
        if found is None:
            token = root.objects.create_text(root.state, text)
        else:
            token = root.objects.write_text_if_match(root.state, text, found.token)
    # The answer to a write of our own that was repeated reads like that of a lost race.
    if token is None and root.objects.read_text_if_exists(root.state) != text:
        findings.stop("state_cas_mismatch", root.state.uri, _MOVED)
    return LedgerVersion(state, cas_of(text), token)


def _exclusion(root: ClusterRoot) -> AbstractContextManager[object]:
    """In a folder comparing and swapping are two steps, so a lock of the kernel stands around them."""
    if not root.location.is_local:
        return nullcontext()
    return BranchLocks(root.objects, root.location / CONTROL).hold(["state"])
