"""Numbers by key in a file: one process writes them, any process reads them, and they outlive their writer.

A number is eight aligned bytes in a mapped file, so changing one costs no system call, and a process that is
killed leaves the old or the new value. A new key is written before the length that makes it visible.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

FIRST_BYTES = 64 << 10

Key = tuple[str, ...]

_USED = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")
_NUMBER = struct.Struct("<d")


class NumberFile:
    """The numbers that this process writes; one that is there already goes on from what it has."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._lock = threading.Lock()
        self._map = self._map_file(max(FIRST_BYTES, os.fstat(self._descriptor).st_size))
        if not self._used:
            _USED.pack_into(self._map, 0, _USED.size)
        self._places = dict(_records(self._map))

    def add(self, amount: float, *key: str) -> None:
        """Add to a number."""
        with self._lock:
            place = self._place(key)
            _NUMBER.pack_into(self._map, place, _NUMBER.unpack_from(self._map, place)[0] + amount)

    def set(self, value: float, *key: str) -> None:
        """Replace a number."""
        with self._lock:
            _NUMBER.pack_into(self._map, self._place(key), value)

    def close(self) -> None:
        """Let go of the file; its numbers stay."""
        self._map.close()
        os.close(self._descriptor)

    @property
    def _used(self) -> int:
        used: int = _USED.unpack_from(self._map, 0)[0]
        return used

    def _place(self, key: Key) -> int:
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = self._append(key)
        return place

    def _append(self, key: Key) -> int:
        text = msgspec.json.encode(key)
        text += b" " * (-(_LENGTH.size + len(text)) % _NUMBER.size)
        start = self._used
        place = start + _LENGTH.size + len(text)
        if place + _NUMBER.size > len(self._map):
            size = 2 * len(self._map)
            self._map.close()
            self._map = self._map_file(size)
        _LENGTH.pack_into(self._map, start, len(text))
        self._map[start + _LENGTH.size : place] = text
        _NUMBER.pack_into(self._map, place, 0.0)
        _USED.pack_into(self._map, 0, place + _NUMBER.size)
        return place

    def _map_file(self, size: int) -> mmap.mmap:
        os.ftruncate(self._descriptor, size)
        return mmap.mmap(self._descriptor, size)


def read_numbers(path: Path) -> dict[Key, float]:
    """Return the numbers in a file that its writer may be changing; nothing if there is no file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    return {key: _NUMBER.unpack_from(data, place)[0] for key, place in _records(data)}


def _records(data: bytes | mmap.mmap) -> Iterator[tuple[Key, int]]:
    """Yield each key with the place of its number."""
    if len(data) < _USED.size:
        return  # created, and nothing written yet
    used, at = _USED.unpack_from(data, 0)[0], _USED.size
    while at < used:
        begin = at + _LENGTH.size
        place = begin + _LENGTH.unpack_from(data, at)[0]
        yield msgspec.json.decode(data[begin:place], type=Key), place
        at = place + _NUMBER.size
