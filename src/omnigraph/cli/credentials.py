"""Tokens of servers: the credentials file of the operator, and which token a request carries."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from omnigraph.cli.config_file import config_path
from omnigraph.errors import BadRequest

FILE = "credentials"
ANY_TOKEN_SETTING = "OMNIGRAPH_BEARER_TOKEN"
TOKEN_SETTING = "OMNIGRAPH_TOKEN_"

Sections = dict[str, list[str]]
"""The lines of each section, its heading first; those before the first section under an empty name."""


def credentials_path() -> Path:
    """Return the path of the credentials file, next to the config file."""
    config = config_path()
    if config is None:
        raise BadRequest("there is no home folder for credentials", remedy="set OMNIGRAPH_HOME")
    return config.parent / FILE


def find_token(url: str, servers: Mapping[str, str]) -> str | None:
    """Return the token for a URL; one that belongs to a server is never sent outside of it."""
    name = _server_of(url, servers)
    if name is not None:
        keyed = os.environ.get(token_setting(name)) or read_token(name)
        if keyed:
            return keyed
    return os.environ.get(ANY_TOKEN_SETTING) or None


def token_setting(name: str) -> str:
    """Return the environment variable that holds the token of a server."""
    return f"{TOKEN_SETTING}{name.upper().replace('-', '_')}"


def _server_of(url: str, servers: Mapping[str, str]) -> str | None:
    """Return the configured server with the longest URL that a URL is below."""
    found = [(len(base), name) for name, base in servers.items() if _is_below(url, base)]
    return max(found)[1] if found else None


def _is_below(url: str, base: str) -> bool:
    one, other = urlsplit(url), urlsplit(base.rstrip("/"))
    same = (one.scheme.lower(), one.netloc.lower()) == (other.scheme.lower(), other.netloc.lower())
    return same and (one.path == other.path or one.path.startswith(f"{other.path}/"))


def read_token(name: str) -> str | None:
    """Return the token that the credentials file has for a server."""
    for line in _read_sections(credentials_path()).get(name, [])[1:]:
        key, sign, value = line.partition("=")
        if sign and key.strip() == "token":
            return _strip_quotes(value) or None
    return None


def save_token(name: str, token: str) -> Path:
    """Write the token of a server; other sections stay as they are."""
    path = credentials_path()
    _write_sections(path, {**_read_sections(path), name: [f"[{name}]", f"token = {token}"]})
    return path


def remove_token(name: str) -> Path:
    """Remove the token of a server, if there is one."""
    path = credentials_path()
    sections = _read_sections(path)
    if name in sections:
        _write_sections(path, {key: lines for key, lines in sections.items() if key != name})
    return path


def _strip_quotes(value: str) -> str:
    text = value.strip()
    if text[:1] in ("'", '"') and text.find(text[0], 1) > 0:
        return text[1 : text.index(text[0], 1)]
    return text.partition(" #")[0].strip()


def _read_sections(path: Path) -> Sections:
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "it is not UTF-8"
        raise BadRequest(f"cannot read '{path}': {reason}", remedy="fix or remove it") from failure
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise BadRequest(f"'{path}' can be read by others", remedy=f"run: chmod 600 {path}")
    sections: Sections = {"": []}
    current = ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("[") and stripped.endswith("]"):
            current = stripped[1:-1].strip()
        sections.setdefault(current, []).append(line)
    return sections


def _write_sections(path: Path, sections: Sections) -> None:
    """Replace the file at once; only its owner can ever read it."""
    text = "".join(f"{line}\n" for lines in sections.values() for line in lines)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{FILE}")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).replace(path)
    except OSError as failure:
        raise BadRequest(f"cannot write '{path}': {failure.strerror}", remedy="check the path") from failure
