"""The lines of a text by their places, so that most of them need not be cut out."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.write.violations import Flags, Numbers

_LINE_END, _CARRIAGE_RETURN, _COLON, _CLOSING = b"\n\r:}"
_WORD = 8

_BEFORE_COLON = np.zeros(256, np.bool_)
"""What can stand before the colon of a member: the end of its name, or blank space."""
_BEFORE_COLON[list(b'" \t\r')] = True


class Lines:
    """Where the lines of a text begin and end; the last one may lack its line end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._bytes = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(self._bytes == _LINE_END)
        if data and data[-1] != _LINE_END:
            ends = np.append(ends, len(data))
        self.ends: Numbers = ends
        """Without the line end."""
        self.starts: Numbers = np.concatenate(([0], ends[:-1] + 1)) if ends.size else ends

    def __len__(self) -> int:
        return int(self.ends.size)

    @cached_property
    def sizes(self) -> Numbers:
        """How many bytes each line has without its line end."""
        return self.ends - self.starts

    def line(self, number: int) -> bytes:
        """A line without its line end."""
        return self.data[self.starts[number] : self.ends[number]]

    def text(self, numbers: Numbers) -> bytes:
        """The lines of ascending numbers as one text."""
        if numbers.size == len(self):
            return self.data
        last = np.flatnonzero(np.diff(numbers) != 1)
        begin = self.starts[numbers[np.concatenate(([0], last + 1))]]
        end = self.ends[numbers[np.append(last, -1)]] + 1
        return b"".join(map(self.data.__getitem__, map(slice, begin.tolist(), end.tolist())))

    def beginning_with(self, head: bytes, numbers: Numbers) -> Flags:
        """Which of the lines begin with these bytes, of which there are eight or more."""
        found = self.sizes[numbers] >= len(head)
        for at in (*range(0, len(head) - _WORD, _WORD), len(head) - _WORD):
            places = self.starts[numbers[found]] + at
            found[found] = self._words[places] == np.frombuffer(head, np.uint64, 1, at)[0]
        return found

    def closed(self, numbers: Numbers) -> Flags:
        """Which of the lines end in a brace, as objects do."""
        last = self.ends[numbers] - 1
        last -= self._bytes[last] == _CARRIAGE_RETURN
        found: Flags = self._bytes[last] == _CLOSING
        return found

    @cached_property
    def _words(self) -> NDArray[np.uint64]:
        """The eight bytes from each place on."""
        places = max(0, len(self.data) - _WORD + 1)
        return np.ndarray((places,), np.uint64, self.data, strides=(1,))


def member_colons(text: bytes) -> NDArray[np.intp]:
    """The places of all colons that may belong to a member; some may stand within texts."""
    letters: NDArray[np.uint8] = np.frombuffer(text, np.uint8)
    colons = np.flatnonzero(letters == _COLON)
    found: NDArray[np.intp] = colons[_BEFORE_COLON[letters[colons - 1]]]
    return found
