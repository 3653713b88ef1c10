"""Work reports how far it is to its caller."""

from __future__ import annotations

import threading

import pytest

from omnigraph.progress import Progress, ProgressEvent, begin_stage, progress_to, stage


def figures(heard: list[Progress]) -> list[tuple[str, str, int, int | None]]:
    return [(now.stage, now.event.value, now.tasks_done, now.tasks) for now in heard]


def test_a_stage_tells_its_begin_what_is_done_and_its_end() -> None:
    heard: list[Progress] = []
    with progress_to(heard.append), stage("read", tasks=2, rows=10, size=100) as reading:
        reading.advance(tasks=1, rows=4, size=60)
        reading.advance(tasks=1, rows=6, size=40)
    assert figures(heard) == [
        ("read", "begun", 0, 2),
        ("read", "progress", 1, 2),
        ("read", "progress", 2, 2),
        ("read", "ended", 2, 2),
    ]
    assert [(now.rows, now.all_rows, now.bytes, now.all_bytes) for now in heard[1:3]] == [
        (4, 10, 60, 100),
        (10, 10, 100, 100),
    ]


def test_work_within_a_stage_adds_to_it_and_is_not_reported_alone() -> None:
    heard: list[Progress] = []
    with progress_to(heard.append), stage("embed", rows=5):
        inner = begin_stage("find", tasks=2)
        inner.advance(tasks=1)
        inner.end()
        with stage("more", tasks=1) as more:
            more.advance(tasks=1)
    assert figures(heard) == [
        ("embed", "begun", 0, 0),
        ("embed", "progress", 1, 2),
        ("embed", "progress", 2, 3),
        ("embed", "ended", 2, 3),
    ]


def test_how_many_tasks_there_will_be_can_be_left_open() -> None:
    heard: list[Progress] = []
    with progress_to(heard.append), stage("pagerank", tasks=None):
        begin_stage("round", tasks=4).advance(tasks=4)
    assert figures(heard)[-1] == ("pagerank", "ended", 4, None)
    assert heard[-1].share is None


def test_a_stage_that_fails_has_no_end() -> None:
    heard: list[Progress] = []
    with pytest.raises(ValueError, match="odd"), progress_to(heard.append), stage("read"):
        raise ValueError("odd")
    assert [now.event for now in heard] == [ProgressEvent.BEGUN]
    with progress_to(heard.append), stage("next"):
        pass
    assert heard[-1].stage == "next", "the one that failed is not open any more"


def test_work_outside_of_the_block_is_not_reported() -> None:
    heard: list[Progress] = []
    with progress_to(heard.append):
        pass
    with stage("read", tasks=1) as reading:
        reading.advance(tasks=1)
    assert heard == []


def test_the_nearest_listener_hears_and_none_changes_nothing() -> None:
    outer: list[Progress] = []
    inner: list[Progress] = []
    with progress_to(outer.append):
        with progress_to(inner.append), stage("a"):
            pass
        with progress_to(None), stage("b"):
            pass
    assert ({now.stage for now in inner}, {now.stage for now in outer}) == ({"a"}, {"b"})


def test_threads_may_add_at_once() -> None:
    heard: list[Progress] = []
    with progress_to(heard.append), stage("optimize", tasks=400) as working:

        def work() -> None:
            for _ in range(100):
                working.advance(tasks=1, rows=2)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert figures(heard)[-1] == ("optimize", "ended", 400, 400)
    assert [now.rows for now in heard] == sorted(now.rows for now in heard)


def test_rates_and_what_is_left_follow_from_the_figures() -> None:
    now = Progress("read", tasks_done=1, tasks=4, rows=100, bytes=3000, all_bytes=4000, seconds=6.0)
    assert now.share == 0.75, "the furthest of what is known"
    assert (now.rows_per_second, now.bytes_per_second, now.seconds_left) == (100 / 6, 500, 2)
    assert now.to_json() == {
        "event": "progress",
        "stage": "read",
        "tasks_done": 1,
        "tasks": 4,
        "rows": 100,
        "total_rows": None,
        "bytes": 3000,
        "total_bytes": 4000,
        "seconds": 6.0,
        "rows_per_second": 17,
        "bytes_per_second": 500,
        "seconds_left": 2.0,
        "spark": None,
    }
    begun = Progress("read", ProgressEvent.BEGUN)
    assert (begun.share, begun.seconds_left, begun.rows_per_second) == (None, None, 0)
