"""A graph that is synced from a folder to a bucket and back is whole in both."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.storage.bucket import s3_client
from omnigraph.storage.location import Location
from tests.engine.moves.branching import add, glance, glance_of, open_at
from tests.engine.moves.conftest import Moved
from tests.engine.moves.forks import bases_on_disk

pytestmark = pytest.mark.s3


def upload(folder: Path, bucket: Location) -> None:
    """What `aws s3 sync FOLDER BUCKET` does."""
    client = s3_client(bucket)
    for file in (file for file in folder.rglob("*") if file.is_file()):
        client.put(f"{bucket.key}/{file.relative_to(folder)}", file.read_bytes())


def download(bucket: Location, folder: Path) -> None:
    client = s3_client(bucket)
    for entry in (entry for batch in client.list(bucket.key) for entry in batch):
        file = folder / entry["path"].removeprefix(f"{bucket.key}/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(client.get(entry["path"]).bytes().to_bytes())


def test_a_folder_that_was_synced_to_a_bucket_shows_everything(moved: Moved, s3_root: Location) -> None:
    upload(moved.at, s3_root)
    with open_at(s3_root, read_only=True) as graph:
        assert glance(graph) == glance_of(moved.picture)
    with open_at(s3_root) as graph:
        add(graph, "new", branch="inner")
        graph.merge("inner", "written")
        graph.branches.create("more", from_="innermost")
        graph.optimize("inner")


def test_a_bucket_that_was_synced_to_a_folder_shows_everything(
    moved: Moved, s3_root: Location, tmp_path: Path
) -> None:
    upload(moved.at, s3_root)
    with open_at(s3_root) as graph:
        add(graph, "new", branch="innermost")
        seen = glance(graph)
    download(s3_root, tmp_path / "back")
    assert bases_on_disk(tmp_path / "back") == {s3_root.uri}
    with open_at(tmp_path / "back", read_only=True) as graph:
        assert glance(graph) == seen
    with open_at(tmp_path / "back") as graph:
        assert bases_on_disk(tmp_path / "back") == {str(tmp_path / "back")}
        assert glance(graph) == seen
        add(graph, "newer", branch="innermost")
