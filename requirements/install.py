"""Bring `.venv` in line with the lock; only the standard library is needed to run this."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".installed"
LOCK_FILE = ROOT / "requirements" / "dev.txt"
INPUTS = (LOCK_FILE, ROOT / "pyproject.toml", Path(__file__).resolve())


def up_to_date() -> bool:
    """The stamp is newer than everything it was made from."""
    if not STAMP.exists() or not PYTHON.exists():
        return False
    made = STAMP.stat().st_mtime_ns
    return all(source.stat().st_mtime_ns <= made for source in INPUTS)


def usable() -> bool:
    """An environment survives only while the interpreter it was made from is still there and new enough."""
    if not PYTHON.exists():
        return False
    probe = "import pip, sys; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([str(PYTHON), "-c", probe], capture_output=True, check=False).returncode == 0


def pip_install(*arguments: str) -> None:
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    subprocess.run([*command, *arguments], check=True, cwd=ROOT)


def install() -> None:
    print("Installing the locked dependencies into .venv ...", flush=True)
    if not usable():
        venv.create(VENV, clear=True, with_pip=True, symlinks=True)
    STAMP.unlink(missing_ok=True)
    pip_install("--require-hashes", "-r", str(LOCK_FILE))
    pip_install("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    STAMP.touch()


def main() -> int:
    # The kernel drops the lock when this process ends, so a killed install never blocks the next one.
    with (ROOT / ".venv.lock").open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        if up_to_date():
            return 0
        try:
            install()
        except subprocess.CalledProcessError as failure:
            print(f"error: {' '.join(failure.cmd[1:])} ended with {failure.returncode}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
