"""Build wheel and sdist, and run the README with the wheel in an empty environment (`make release`)."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
RUNTIME = ROOT / "requirements" / "runtime.txt"
README = ROOT / "README.md"


class Failure(Exception):
    """A step of the release failed."""


def run(command: Sequence[str | Path], folder: Path) -> str:
    """Return what a command prints, without the settings of the development environment."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [str(word) for word in command]
    ran = subprocess.run(words, cwd=folder, env=inherited, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise Failure(f"{shlex.join(words)} ended with {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout + ran.stderr


def build() -> Path:
    """Build the sdist, and the wheel from it; return the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, ROOT], ROOT)
    for path in sorted(DIST.iterdir()):
        print(f"built      dist/{path.name}, {path.stat().st_size:,} bytes")
    (wheel,) = DIST.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel with its locked dependencies into a new environment; return its programs."""
    venv.create(folder, with_pip=True, symlinks=True)
    pip: list[str | Path] = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-input"]
    run([*pip, "--require-hashes", "-r", RUNTIME], folder)
    run([*pip, "--no-deps", wheel], folder)
    listed = run([folder / "bin" / "python", "-m", "pip", "list", "--format", "freeze"], folder).split()
    print(f"installed  {wheel.name} and {len(listed) - 1} other packages from {RUNTIME.relative_to(ROOT)}")
    return folder / "bin"


def fenced(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)


def commands(page: str) -> Iterator[tuple[str, str]]:
    """Each command of the page's session, with the output that the page shows."""
    parts = re.split(r"^\$ omnigraph (.*)\n", "".join(fenced(page, "console")), flags=re.MULTILINE)
    return zip(parts[1::2], parts[2::2], strict=True)


def comparable(text: str, place: Path) -> str:
    """Mask what differs from run to run: commit ids and the folder."""
    return re.sub(r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "<id>", text.replace(str(place), "/data")).strip()


def require_same(what: str, printed: str, shown: str, place: Path) -> None:
    if comparable(printed, place) != comparable(shown, place):
        raise Failure(f"{what} printed\n{printed}\nand the README shows\n{shown}")


def follow_readme(programs: Path, place: Path) -> None:
    """Run the session and the program of the README, and compare their output with the page."""
    page = README.read_text(encoding="utf-8")
    shutil.copytree(ROOT / "demo", place / "demo", ignore=shutil.ignore_patterns("out"))
    session = list(commands(page))
    for arguments, shown in session:
        command = [str(programs / "omnigraph"), *shlex.split(arguments)]
        ran = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        require_same(f"omnigraph {arguments}", ran.stdout + ran.stderr, shown, place)
    print(f"ran        {len(session)} commands of README.md, with the output that it shows")
    (program,) = fenced(page, "python")
    printed = run([programs / "python", "-I", "-c", program], place)
    require_same("the program", printed, fenced(page, "")[-1], place)
    print("ran        the Python program of README.md, with the output that it shows")


def main() -> int:
    with TemporaryDirectory(prefix="omnigraph-release-") as scratch:
        folder = Path(scratch).resolve()
        place = folder / "reader"
        place.mkdir()
        try:
            wheel = build()
            programs = install(wheel, folder / "venv")
            print(f"version    {run([programs / 'omnigraph', '--version'], place).strip()}")
            follow_readme(programs, place)
        except Failure as failure:
            print(f"error: {failure}", file=sys.stderr)
            return 1
    print("ready      upload the files in dist/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
