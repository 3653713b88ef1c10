"""Tasks that read pieces of one folder at the same moment: four cores, and more tasks than rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.fresh_process import run
from tests.storage.conftest import s3_server, use_s3

PROGRAM = """
import json, sys
from pathlib import Path
import omnigraph as og
from omnigraph.engine.load import replaced_rows as matching
from omnigraph.engine.load.checks import check_scope as scope
from omnigraph.engine.load.sources import plan
from omnigraph.pipeline.session import session

SCHEMA = "node Person { slug: String @key  email: String? @unique  age: I32?  photo: Blob? }"
FILES = 12
matching.WORTH, scope.FEW = 1, 0
plan._OPEN_COST = plan.LARGEST  # each file is a task of its own
spark = session("local[4]", fast_start=True, settings={"spark.sql.shuffle.partitions": "32"})
data, places = Path(sys.argv[1]), sys.argv[2:]

def person(slug, **more):
    return json.dumps({"type": "Person", "data": {"slug": slug, "photo": "base64:AAECAw==", **more}}) + "\\n"

def folder(name, lines):
    for number in range(FILES):
        (data / name).mkdir(parents=True, exist_ok=True)
        (data / name / f"{number}.jsonl").write_text("".join(lines(number)))
    return data / name

# The second row of every file has an email that is taken: each file has a piece to be written again.
first = folder("first", lambda n: [person(f"a{n}", email=f"{n}@x"), person(f"b{n}", email="0@x")])
# Each file updates one person and adds another.
second = folder("second", lambda n: [person(f"new{n}", age=n), person(f"a{n}", age=n, email=f"{n}@x")])
answer = {}
for number, uri in enumerate(places):
    with og.init(uri, schema=SCHEMA) as graph:
        loaded = graph.load(first, mode="append", skip_bad=True, engine="spark")
        graph.branches.create("work")
        merged = graph.load(second, mode="merge", engine="spark", branch="work")
        graph.load(folder(f"main{number}", lambda n: [person(f"main{n}")]), mode="append", engine="spark")
        landed = graph.merge("work", engine="spark")
        answer[str(number)] = {
            "engines": [(done.engine.name, done.engine.stages[0].tasks) for done in (loaded, merged)],
            "loaded": loaded.nodes, "skipped": loaded.skipped_total,
            "merged": merged.nodes, "landed": landed.outcome.value,
            "people": sorted((row["slug"], row["age"]) for row in
                             graph.snapshot().rows("Person", columns=["slug", "age"]).to_pylist()),
        }
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.s3
def test_skipping_bad_rows_and_large_merges_read_pieces_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people: list[list[Any]] = [[f"a{number}", number] for number in range(12)]
    people += [
        [f"{name}{number}", age] for number in range(12) for name, age in (("new", number), ("main", None))
    ]
    with s3_server() as endpoint:
        bucket = use_s3(endpoint, monkeypatch)
        found = run(PROGRAM, str(tmp_path / "data"), str(tmp_path / "graph"), bucket.uri)
    for place in ("0", "1"):
        assert found[place] == {
            "engines": [["spark", 12], ["spark", 12]],
            "loaded": {"Person": 12},
            "skipped": 12,
            "merged": {"Person": 24},
            "landed": "merged",
            "people": sorted(people),
        }
