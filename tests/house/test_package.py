"""What is built is whole, and the package without extras does what needs none."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from hatchling.build import build_sdist, build_wheel

import omnigraph as og

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]

# Hides every package that the lock of the core does not have, then makes, fills and reads a graph.
CORE_ONLY = """
import re, sys
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

pinned = re.findall(r"^([a-z0-9][a-z0-9._-]*)==", Path(sys.argv[1]).read_text(encoding="utf-8"), re.M)
core = {*pinned, "omnigraph"}
hidden = {
    module
    for module, owners in packages_distributions().items()
    if not core & {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners}
}

class Core(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in hidden else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Core
assert not any(map(find_spec, ["obstore", "pandas", "polars", "pyspark", "wordllama"]))

import omnigraph as og

with og.init("team.omni", schema="node Person { handle: String @key  bio: String? }") as graph:
    Path("people.jsonl").write_text('{"type": "Person", "data": {"handle": "ada", "bio": "graphs"}}')
    graph.load("people.jsonl", mode="append")
    wanted = 'match { $p: Person  search($p.bio, "graph") } return { $p.handle as h }'
    found = graph.query(f"query q() {{ {wanted} }}")
    print(found.scalar())
    assert "<table>" in graph._repr_html_()
    for needs in (
        found.to_pandas,
        found.to_polars,
        graph.spark,
        lambda: graph.load("people.jsonl", mode="merge", engine="spark"),
        lambda: graph.load("s3://bucket/people.jsonl", mode="merge"),
        lambda: og.open("s3://bucket/graph"),
        lambda: graph.draw(["ada"]),
        lambda: og.Policy.parse("version: 1"),
    ):
        try:
            needs()
        except og.errors.MissingExtra as missing:
            print(missing.remedy)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        name = build_wheel(str(folder))
    return zipfile.ZipFile(folder / name)


def test_a_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / "omnigraph").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "omnigraph/py.typed" in wanted
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == wanted


def test_an_sdist_holds_what_a_wheel_is_built_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with tarfile.open(tmp_path / build_sdist(str(tmp_path))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "src/omnigraph/py.typed"} <= names
    assert {name.partition("/")[0] for name in names if "/" in name} == {"src"}


def test_a_wheel_says_what_it_is_and_what_it_needs(wheel: zipfile.ZipFile) -> None:
    about = f"omnigraph-{og.__version__}.dist-info"
    metadata = Parser().parsestr(wheel.read(f"{about}/METADATA").decode("utf-8"))
    assert (metadata["Name"], metadata["Version"]) == ("omnigraph", og.__version__)
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    systems = {one for one in metadata.get_all("Classifier", []) if one.startswith("Operating System")}
    assert systems == {"Operating System :: MacOS", "Operating System :: POSIX :: Linux"}
    assert set(metadata.get_all("Provides-Extra", [])) == set(EXTRAS)
    core = [needed for needed in metadata.get_all("Requires-Dist", []) if "extra ==" not in needed]
    assert sorted(core) == sorted(needed.replace("ruamel.", "ruamel-") for needed in PROJECT["dependencies"])
    entries = wheel.read(f"{about}/entry_points.txt").decode("utf-8")
    assert "omnigraph = omnigraph.cli.start:command" in entries


def test_a_wheel_runs_from_where_it_was_unpacked(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    program = "import omnigraph.cli.main as m, sys; print(m.__file__); sys.exit(m.main(['--version']))"
    # Without site-packages' own links to the checkout, which would come first.
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {program}"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    where, version = ran.stdout.splitlines()
    assert Path(where).is_relative_to(tmp_path)
    assert version == f"omnigraph {og.__version__}"


def test_windows_is_refused_in_one_sentence() -> None:
    program = "import sys; sys.platform = 'win32'; import omnigraph"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    last = ran.stderr.splitlines()[-1]
    assert last == "ImportError: omnigraph runs on Linux and macOS; on Windows use WSL."


def test_the_core_works_alone_and_says_what_the_rest_needs(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CORE_ONLY, str(ROOT / "requirements" / "runtime.txt")]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "ada",
        "install it: pip install 'pandas'",
        "install it: pip install 'polars'",
        "install it: pip install 'omnigraph[spark]'",
        "install it: pip install 'omnigraph[spark]'",
        "install it: pip install 'omnigraph[s3]'",
        "install it: pip install 'omnigraph[s3]'",
        "install it: pip install 'omnigraph[notebook]'",
        "install it: pip install 'omnigraph[policy]'",
    ]


def test_every_extra_that_is_named_to_users_exists_and_is_documented() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"""extra=["']([\w-]+)["']|omnigraph\[([\w-]+)\]|extra '([\w-]+)'""", source))
    extras = {name for found in named for name in found if name}
    assert {"spark", "s3", "offline-embeddings", "notebook"} <= extras
    assert extras <= set(EXTRAS)
    quickstart = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    assert {
        name for name in set(EXTRAS) - {"bench", "dev", "integrations"} if f"`{name}`" not in quickstart
    } == set()


def test_the_developers_have_what_every_extra_brings() -> None:
    packages = {
        name: {re.split(r"[<>=!~;\[ ]", needed)[0] for needed in needs} for name, needs in EXTRAS.items()
    }
    # Airflow and its like want many packages of their own: `make integrations` has an environment for them.
    development = packages["dev"] | packages["integrations"]
    for name, needs in packages.items():
        if name != "bench":
            assert needs <= development, name
