"""Bases of external blobs: normalized once, so that later checks compare plain prefixes."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from omnigraph.cluster.config import BlobBase, BlobScope
from omnigraph.cluster.yaml_node import Node

_CODE = "external_blob_base_invalid"
_SCHEMES = ("s3", "https", "file")


def read_blob_bases(node: Node | None) -> tuple[BlobBase, ...]:
    """Return the bases that `external_blobs` allows, sorted by URI and scope; none of them means deny."""
    members = {} if node is None else node.members(("allow",))
    found: list[BlobBase] = []
    for item in members["allow"].items() if "allow" in members else []:
        base = _read_base(item)
        if base is None:
            continue
        other = next((one for one in found if _overlap(one.uri, base.uri)), None)
        if other is not None:
            item.report(f"'{base.base}' overlaps '{other.base}'", _CODE)
        found.append(base)
    return tuple(sorted(found, key=lambda one: (one.uri, one.scope)))


def _read_base(node: Node) -> BlobBase | None:
    members = node.members(("base", "scope"), required=("base", "scope"))
    if len(members) < 2:
        return None
    text, scope = members["base"].text(), members["scope"].choice(BlobScope)
    if text is None or scope is None:
        return None
    reason = _find_mistake(text, scope)
    if reason is not None:
        members["base"].report(f"'{text}' {reason}", _CODE)
        return None
    return BlobBase(_normalize(text), scope, text)


def _find_mistake(text: str, scope: BlobScope) -> str | None:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return "is not a URI"
    if parts.scheme not in _SCHEMES:
        return f"must begin with one of: {', '.join(f'{scheme}://' for scheme in _SCHEMES)}"
    if parts.username is not None or parts.password is not None:
        return "must not have credentials"
    if parts.query or parts.fragment or "?" in text or "#" in text:
        return "must not have a query or a fragment"
    if (parts.scheme == "file") == bool(parts.hostname) or (parts.scheme == "s3" and port is not None):
        return "names no place of its scheme"
    if any(part in (".", "..") for part in unquote(parts.path).split("/")):
        return "must not have '.' or '..' in it"
    if parts.scheme == "file" and scope is BlobScope.SERVER_SAFE:
        return "is a path of one machine and cannot be server_safe"
    return None


def _normalize(text: str) -> str:
    """Return a base with a lower-case scheme and host, single slashes, and one at its end."""
    parts = urlsplit(text)
    path = "/".join(part for part in parts.path.split("/") if part)
    return f"{parts.scheme}://{parts.netloc.lower()}/{path}{'/' if path else ''}"


def _overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
