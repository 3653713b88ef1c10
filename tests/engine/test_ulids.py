from __future__ import annotations

import os
import time

from ulid import ULID

from omnigraph.engine.graph.root import new_id, ulid


def test_the_text_is_that_of_any_other_ulid() -> None:
    for milliseconds in (0, 1, 1_700_000_000_123, 2**48 - 1):
        for entropy in (bytes(10), b"\xff" * 10, os.urandom(10)):
            assert ulid(milliseconds, entropy) == str(ULID(milliseconds.to_bytes(6) + entropy))


def test_a_new_id_tells_its_moment_and_is_like_no_other() -> None:
    before = time.time_ns() // 1_000_000
    found = [new_id() for _ in range(100)]
    after = time.time_ns() // 1_000_000
    assert len(set(found)) == 100
    assert all(before <= ULID.from_str(one).milliseconds <= after for one in found)
