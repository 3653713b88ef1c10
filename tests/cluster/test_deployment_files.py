"""Files for containers and systemd: their commands are run here as they stand, without an engine.

The image is rehearsed: a wheel is built of the files that the Dockerfile copies, and its programs run in an
environment that has what the extras of the Dockerfile need and nothing else. Only pip does not fetch it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PathDistribution, distribution
from pathlib import Path
from typing import Any

import httpx
import pytest
from hatchling.build import build_wheel
from packaging.requirements import Requirement

from omnigraph.cli.main import main
from omnigraph.yaml_text import read_yaml
from tests.server.running import environment

ROOT = Path(__file__).resolve().parents[2]
ENTRYPOINT = ROOT / "deploy" / "entrypoint.sh"
TOKENS = {"act-ann": "long-random-text"}


def instructions(name: str) -> list[str]:
    """Return the arguments of one kind of instruction in the Dockerfile."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    return [line.partition(" ")[2] for line in lines if line.partition(" ")[0] == name]


def compose() -> dict[str, Any]:
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = read_yaml(text, "compose.yaml").plain()
    return found


@dataclass(frozen=True)
class Image:
    """What the image would hold."""

    programs: Path

    def start(self, arguments: list[str], settings: dict[str, str], **streams: Any) -> subprocess.Popen[str]:
        """Start the entry point, with the programs of the image."""
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        inherited = {key: value for key, value in environment().items() if not key.startswith("PYTHON")}
        env = {**inherited, "PATH": path, **settings}
        return subprocess.Popen([str(ENTRYPOINT), *arguments], env=env, text=True, **streams)

    def run(self, arguments: list[str], settings: dict[str, str] | None = None) -> tuple[int, str]:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with self.start(arguments, settings or {}, **streams) as process:
            output, _ = process.communicate()
            return process.returncode, output


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    folder = tmp_path_factory.mktemp("image")
    wheel = build_as_the_image_does(folder / "build")
    venv.create(folder / "venv", symlinks=True)
    [site] = (folder / "venv" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(site)
    [about] = site.glob("omnigraph-*.dist-info")
    [extras] = {found for line in instructions("RUN") for found in re.findall(r"\[([\w,]+)\]", line)}
    for name in find_needed(PathDistribution(about), extras.split(",")):
        link_package(name, site)
    programs = folder / "venv" / "bin"
    for entry in PathDistribution(about).entry_points:
        module, _, function = entry.value.partition(":")
        at = programs / entry.name
        at.write_text(
            f"#!{programs / 'python'}\nimport sys\nimport {module}\nsys.exit({module}.{function}())\n"
        )
        at.chmod(0o755)
    return Image(programs)


def build_as_the_image_does(folder: Path) -> Path:
    """Return a wheel of nothing but the files that are copied before it is built."""
    folder.mkdir()
    stages = (ROOT / "Dockerfile").read_text(encoding="utf-8").split("\nFROM ")
    for line in re.findall(r"^COPY (.+)$", stages[1], re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, folder / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, folder / target)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return folder / build_wheel(str(folder))


def find_needed(package: PathDistribution, extras: Iterable[str]) -> set[str]:
    """Return the packages that a package needs with some extras, and what these need."""
    found: set[str] = set()

    def add(requirements: Iterable[str], extras: Iterable[str]) -> None:
        for one in map(Requirement, requirements):
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                key = f"{one.name}[{','.join(sorted(one.extras))}]"
                if key not in found:
                    found.add(key)
                    add(distribution(one.name).requires or (), one.extras)

    add(package.requires or (), extras)
    return {key.partition("[")[0] for key in found}


def link_package(name: str, site: Path) -> None:
    """Make an installed package available in another environment."""
    package = distribution(name)
    for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
        if not (site / top).exists():
            (site / top).symlink_to(str(package.locate_file(top)))


def test_services_of_compose_apply_and_serve_a_cluster(tmp_path: Path, image: Image) -> None:
    services, cluster = compose()["services"], tmp_path / "cluster"
    assert image.run(["cluster", "init", str(cluster)])[0] == 0
    (tmp_path / "tokens.json").write_text(json.dumps(TOKENS), encoding="utf-8")
    mounted = {"/cluster": str(cluster), "/run/secrets/tokens": str(tmp_path / "tokens.json")}
    assert services["server"]["volumes"] == services["apply"]["volumes"] == ["./cluster:/cluster"]

    def inside(words: list[str]) -> list[str]:
        return [mounted.get(word, word) for word in words]

    comment = (ROOT / "compose.yaml").read_text(encoding="utf-8").splitlines()[1]
    [once] = re.findall(r"run --rm apply (.+)$", comment)
    assert image.run(inside(once.split()))[0] == 0
    status, output = image.run(inside(services["apply"]["command"]))
    assert status == 0, output
    settings = {name: mounted.get(value, value) for name, value in services["server"]["environment"].items()}
    settings["OMNIGRAPH_BIND"] = "127.0.0.1:0"
    with (
        (tmp_path / "log").open("w") as log,
        image.start(services["server"]["command"], settings, stdout=subprocess.PIPE, stderr=log) as server,
    ):
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip().partition("=")[2]
            assert address, (tmp_path / "log").read_text()
            # The health check of the image, at the port of this server.
            [check] = instructions("HEALTHCHECK")
            command = json.loads(check.partition("CMD ")[2])
            healthy = [word.replace("127.0.0.1:8080", address) for word in command]
            assert subprocess.run([image.programs / "python", *healthy[1:]], check=False).returncode == 0
            answer = httpx.get(
                f"http://{address}/graphs/knowledge/snapshot",
                headers={"Authorization": f"Bearer {TOKENS['act-ann']}"},
                trust_env=False,
            )
            assert answer.status_code == 200
        finally:
            server.terminate()
    assert server.returncode == 0


def test_entry_point_needs_a_cluster_to_serve(image: Image) -> None:
    status, output = image.run([], {"OMNIGRAPH_CLUSTER": ""})
    assert (status, "OMNIGRAPH_CLUSTER" in output) == (64, True)


def test_image_copies_what_is_there_and_starts_the_entry_point() -> None:
    sources = [word for line in instructions("COPY") for word in line.split()[:-1] if "--from" not in line]
    assert [name for name in sources if not (ROOT / name).exists()] == []
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["omnigraph-entrypoint"]
    assert "deploy/entrypoint.sh /usr/local/bin/omnigraph-entrypoint" in instructions("COPY")
    assert os.access(ENTRYPOINT, os.X_OK)
    assert instructions("EXPOSE") == ["8080"]


def test_image_installs_extras_that_the_package_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [found.split(",") for line in instructions("RUN") for found in re.findall(r"\[([\w,]+)\]", line)]
    assert wanted == [["mcp", "s3", "server"]] * 2
    assert set(wanted[0]) <= set(project["optional-dependencies"])
    needed = {name for name in ("README.md", "LICENSE") if name in str(project)}
    assert needed <= {word for line in instructions("COPY") for word in line.split()}


def test_unit_starts_a_server_with_options_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    unit = (ROOT / "deploy" / "omnigraph.service").read_text(encoding="utf-8")
    [command] = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    program, *words = shlex.split(command)
    assert Path(program).name == "omnigraph-server"
    assert main(["serve", "--help"]) == 0
    shown = capsys.readouterr().out
    assert [word for word in words if word.startswith("--") and word not in shown] == []
    assert command in (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
