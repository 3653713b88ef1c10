"""Bring `.venv` in line with the lock; only the standard library is needed to run this."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".installed"
LOCK_FILE = ROOT / "requirements" / "dev.txt"
PIP_TO_UV = {
    "PIP_CERT": "SSL_CERT_FILE",
    "PIP_EXTRA_INDEX_URL": "UV_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_INDEX_URL": "UV_INDEX_URL",
}
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


def install_locked() -> None:
    """With uv, which needs a third of pip's time; with pip itself where uv cannot get at the packages."""
    with NamedTemporaryFile("w", suffix=".txt") as only_uv:
        only_uv.write(locked("uv"))
        only_uv.flush()
        pip_install("--no-deps", "--require-hashes", "-r", only_uv.name)
    command = [
        str(VENV / "bin" / "uv"),
        "pip",
        "install",
        "--quiet",
        "--compile-bytecode",
        "--require-hashes",
    ]
    command += ["--python", str(PYTHON), "-r", str(LOCK_FILE)]
    if subprocess.run(command, cwd=ROOT, env=as_uv_wants(os.environ), check=False).returncode != 0:
        print("uv could not install them; trying pip ...", flush=True)
        pip_install("--require-hashes", "-r", str(LOCK_FILE))


def locked(name: str) -> str:
    """The lines of the lock about one package."""
    lines = LOCK_FILE.read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"{name}=="))
    end = next(number for number in range(start, len(lines)) if not lines[number].endswith("\\"))
    return "\n".join(lines[start : end + 1]) + "\n"


def as_uv_wants(environment: Mapping[str, str]) -> dict[str, str]:
    """Where pip is told to look for packages, uv looks, too."""
    told = {theirs: environment[pip] for pip, theirs in PIP_TO_UV.items() if environment.get(pip)}
    return {**told, **environment}


def install() -> None:
    print("Installing the locked dependencies into .venv ...", flush=True)
    if not usable():
        venv.create(VENV, clear=True, with_pip=True, symlinks=True)
    STAMP.unlink(missing_ok=True)
    install_locked()
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
