"""Folders for work under way: they go with their work, also when that is killed."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.errors import StorageFailure
from omnigraph.storage import scratch
from omnigraph.storage.failures import FailureKind
from omnigraph.storage.scratch import TemporaryFolder, remove_abandoned_folders, write_rows


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def output_of(code: str, at: Path) -> str:
    env = {**os.environ, "TMPDIR": str(at)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.strip()


def test_a_folder_goes_with_its_block_and_with_its_last_user(at: Path) -> None:
    with suppress(RuntimeError), TemporaryFolder("rows") as folder:
        (folder / "file").touch()
        assert [*at.iterdir()] == [folder]
        raise RuntimeError
    assert [*at.iterdir()] == []
    kept = TemporaryFolder("changes")
    assert [*at.iterdir()] == [kept.path]
    del kept
    gc.collect()
    assert [*at.iterdir()] == []


def test_the_folder_of_a_killed_process_goes_with_the_next_use_and_no_other(at: Path) -> None:
    killed = (
        "import os, signal; from omnigraph.storage.scratch import TemporaryFolder;"
        "made = TemporaryFolder('rows'); (made.path / 'file').touch();"
        "print(made.path, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    left = Path(output_of(killed, at))
    assert (left / "file").exists()
    others = at / "somebody-elses"
    others.mkdir()
    held = TemporaryFolder("rows")
    remove_abandoned_folders(at)
    assert {*at.iterdir()} == {others, held.path}


def test_a_process_looks_once_for_what_others_left(at: Path) -> None:
    with TemporaryFolder("rows"):
        left = at / f"{scratch._PREFIX}rows-dead"
        left.mkdir()
    with TemporaryFolder("rows"):
        assert left.exists()
    remove_abandoned_folders(at)
    assert not left.exists()


def test_a_child_that_was_forked_leaves_the_folder_to_its_parent(at: Path) -> None:
    forking = (
        "import os, sys; from omnigraph.storage.scratch import TemporaryFolder;"
        "made = TemporaryFolder('rows'); child = os.fork();"
        "child or sys.exit(0);"
        "os.waitpid(child, 0); print(made.path.exists())"
    )
    assert output_of(forking, at) == "True"
    assert [*at.iterdir()] == []


def test_no_place_for_temporary_files_is_reported_and_is_no_object_that_is_not_there(
    at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(at / "none"))
    with pytest.raises(StorageFailure, match="none': No such file") as caught:
        TemporaryFolder("rows")
    assert caught.value.kind == FailureKind.CONFIGURATION
    assert "TMPDIR" in str(caught.value.remedy)


def test_no_room_for_rows_is_reported_and_what_fails_in_the_rows_stays_what_it_is(at: Path) -> None:
    batch = pa.record_batch({"n": list(range(10_000))})
    assert write_rows(at / "rows", batch.schema, [batch, batch]) == 20_000
    with pytest.raises(StorageFailure, match="No space left"):
        write_rows(Path("/dev/full"), batch.schema, [batch])

    def broken() -> Iterator[pa.RecordBatch]:
        yield batch
        raise ConnectionError("theirs")

    with pytest.raises(ConnectionError, match="theirs"):
        write_rows(at / "rows", batch.schema, broken())
