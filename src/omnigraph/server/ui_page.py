"""The files of the page at `/ui`, as `make ui` built them."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.responses import Response

from omnigraph.errors import NotFound
from omnigraph.server.requests import Call

INDEX = "index.html"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing from other hosts, no script in the page itself; libraries put their styles there."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
MEDIA = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}

_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+")


async def page(call: Call) -> Response:
    """Return the page, or a file of it, whose name changes with its contents."""
    name = call.path.get("file") or INDEX
    content = read_page_file(name)
    age = "no-cache" if name == INDEX else "public, max-age=31536000, immutable"
    media = MEDIA.get(name.rpartition(".")[2], "application/octet-stream")
    return Response(content, headers={**HEADERS, "Cache-Control": age}, media_type=media)


@cache
def read_page_file(name: str) -> bytes:
    """Return the bytes of a file of the page; raises `NotFound` if the page was not built."""
    if not is_page_built():
        raise NotFound(
            "the explorer is not part of this installation",
            remedy="run `make ui` in a checkout, or install a release; every other route works",
        )
    found = _folder().joinpath(name) if _NAME.fullmatch(name) else None
    if found is None or not found.is_file():
        raise NotFound(f"the explorer has no file '{name}'")
    return found.read_bytes()


def is_page_built() -> bool:
    """Whether the page is there."""
    return _folder().joinpath(INDEX).is_file()


def _folder() -> Traversable:
    return files("omnigraph.server").joinpath("page")
