"""`doctor --deep` reads everything and finds bits that flipped on the disk."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.open import open_without_recovery
from omnigraph.engine.maintenance.deep_check import DeepReport, check_deeply, check_unopened
from omnigraph.errors import OmnigraphError
from omnigraph.storage.location import Location
from tests.engine.command_line import run_command
from tests.reference_graphs import convert

SCHEMA = """
node P { k: String @key  name: String? @index  n: I64?  b: Blob?  v: Vector(2)? }
edge E: P -> P { w: I32? @index }
"""
HARMLESS = {
    "latest_version_hint.json": "Lance finds the newest version by its name where the hint is wrong",
    "_schema.pg": "what its text means is compared with the compiled schema; a comment means nothing",
    "__checksums": "a log is compared with files and never read for values",
    "__place.json": "a place that cannot be understood is written again by the next opening",
    "__locks": "a lock has no content that counts",
}


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with every kind of file: data, deletions, indexes, Blobs, a fork, a past schema."""
    folder = tmp_path_factory.mktemp("deep")
    place = folder / "g.omni"
    large = "A" * 400_000
    people: list[dict[str, Any]] = [
        {"k": f"k{n}", "name": f"name {n}", "n": n, "v": [n, 1]} for n in range(300)
    ]
    people[0]["b"] = f"base64:{large}"
    rows = [{"type": "P", "data": one} for one in people]
    edges = [{"edge": "E", "from": f"k{n}", "to": f"k{n + 1}", "data": {"w": n}} for n in range(100)]
    file = folder / "rows.ndjson"
    file.write_text("\n".join(json.dumps(row) for row in [*rows, *edges]))
    with og.init(place, schema=SCHEMA) as graph:
        graph.load(file, mode="append")
        graph.ensure_indices()
        graph.mutate('query q() { update P set { n: 7 } where k = "k3" }')
        graph.mutate('query q() { delete P where k = "k5" }')
        graph.apply_schema(SCHEMA.replace("n: I64?", "n: I64?  more: I32?"))
        graph.branches.create("side")
        graph.mutate('query q() { insert P { k: "side" } }', branch="side")
        graph.mutate('query q() { delete P where k = "k9" }', branch="side")
    return place


@pytest.fixture
def place(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "g.omni"))


def deep(place: Path) -> DeepReport:
    """What `doctor --deep` finds, whether or not the graph can be opened."""
    root = Root.at(Location.parse(place))
    try:
        return check_deeply(open_without_recovery(root, read_only=True))
    except OmnigraphError as failure:
        return check_unopened(root, failure)


def files(place: Path) -> Iterator[Path]:
    for at in sorted(place.rglob("*")):
        if at.is_file() and at.stat().st_size:
            yield at


def kind(name: str) -> str:
    """A file's path without its unique part."""
    plain = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9A-Z]{26}|[0-9a-f]{16,}|\d+", "*", name)
    return re.sub(r"\*[*-]*", "*", plain)


def is_harmless(name: str) -> bool:
    return any(part in name for part in HARMLESS)


def flip(at: Path, random: Random) -> str:
    """Flip one bit of a file; says which one, because the names and sizes of files differ in each run."""
    data = bytearray(at.read_bytes())
    byte, bit = random.randrange(len(data)), random.randrange(8)
    data[byte] ^= 1 << bit
    at.write_bytes(data)
    return f"bit {bit} of byte {byte} of {len(data)}"


def test_a_sound_graph_is_found_to_be_so(place: Path) -> None:
    before = {at: at.read_bytes() for at in files(place)}
    found = deep(place)
    assert found.damaged == ()
    assert found.unrecorded == ()
    # Nodes and edges of both branches; with a node go its edges.
    assert found.tables == 4
    assert found.rows == (299 + 98) + (299 + 96)
    assert found.files > 30
    assert {at: at.read_bytes() for at in files(place)} == before


def test_every_flipped_bit_of_every_kind_of_file_is_reported_or_harmless(place: Path) -> None:
    random = Random(17)
    kinds = defaultdict(list)
    for at in files(place):
        kinds[kind(at.relative_to(place).as_posix())].append(at)
    assert {"_indices", "_deletions", "_transactions", "_refs", "tree", ".blob"} <= {
        part for name in kinds for part in (*name.split("/"), Path(name).suffix)
    }
    missed = []
    for name, found in kinds.items():
        for at in random.sample(found, min(len(found), 2)):
            whole = at.read_bytes()
            flipped = flip(at, random)
            if not is_harmless(name) and deep(place).ok:
                missed.append(f"{at.relative_to(place).as_posix()}: {flipped}")
            at.write_bytes(whole)
    assert missed == []
    assert deep(place).ok


def test_a_lost_end_of_a_file_is_reported(place: Path) -> None:
    at = next(at for at in files(place) if at.suffix == ".lance" and "data" in at.parts)
    at.write_bytes(at.read_bytes()[:-1])
    (damage, *_) = deep(place).damaged
    assert damage.path == at.relative_to(place).as_posix()
    assert "bytes instead of" in damage.reason


def test_files_of_others_are_read_and_their_checksums_can_be_recorded(place: Path, tmp_path: Path) -> None:
    other = tmp_path / "reference"
    with og.open(place) as graph:
        graph.branches.delete("side")
    convert(place, other)
    found = deep(other)
    assert found.ok
    assert (found.files, found.rows) == (0, 397)
    assert found.unrecorded
    report = json.loads(run_command("doctor", str(other), "--deep", "--record", "--json").stdout)
    assert report["deep"]["recorded_now"] == len(found.unrecorded)
    again = deep(other)
    assert (again.files, again.unrecorded) == (len(found.unrecorded), ())
    data = next(at for at in files(other) if at.suffix == ".lance" and "nodes" in at.parts)
    flip(data, Random(3))
    done = run_command("doctor", str(other), "--deep")
    assert done.exit_code == 1
    assert "damaged: nodes/" in done.stdout
    assert "something is out of order" in done.stdout


def test_a_graph_that_cannot_be_opened_is_checked_all_the_same(place: Path) -> None:
    at = place / "_schema.ir.json"
    at.write_text(at.read_text().replace("I64", "I32"))
    done = run_command("doctor", str(place), "--deep", "--json")
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert report["ok"] is False
    assert "compiled schema was changed" in report["deep"]["damaged"][0]["reason"]
    assert report["deep"]["files"] > 30


def test_a_line_that_was_cut_off_loses_only_itself(place: Path) -> None:
    log = next((place / "__checksums").glob("nodes-*.log"))
    log.write_bytes(log.read_bytes()[:-7])
    found = deep(place)
    assert found.ok or len(found.damaged) == 1
    assert len(found.unrecorded) <= 1


def test_a_log_that_cannot_be_written_does_not_fail_a_write(place: Path) -> None:
    shutil.rmtree(place / "__checksums")
    (place / "__checksums").write_text("in the way")
    with og.open(place) as graph:
        graph.mutate('query q() { insert P { k: "written" } }')
    assert deep(place).ok


def test_later_writes_do_not_note_a_damaged_file_again(place: Path) -> None:
    for part in ("_deletions", "data", "_versions"):
        at = next(
            at for at in files(place) if part in at.parts and "nodes" in at.parts and "tree" not in at.parts
        )
        whole = at.read_bytes()
        flip(at, Random(1))
        with og.open(place) as graph:
            for number in range(3):
                graph.mutate(f'query q() {{ insert P {{ k: "{part.strip("_")}{number}" }} }}')
        assert at.relative_to(place).as_posix() in {damage.path for damage in deep(place).damaged}
        at.write_bytes(whole)


def test_a_branch_that_is_made_again_is_no_damage(place: Path) -> None:
    with og.open(place) as graph:
        for name in ("one", "two"):
            graph.branches.delete("side")
            graph.branches.create("side")
            graph.mutate(f'query q() {{ insert P {{ k: "{name}" }} }}', branch="side")
        graph.merge("side", "main")
        graph.optimize()
        graph.cleanup(keep=1)
    found = deep(place)
    assert (found.damaged, found.unrecorded) == ((), ())
