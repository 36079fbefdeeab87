"""The footer of a Parquet file: how many values each column says it holds, read without pyarrow.

pyarrow's own view of a column chunk ends the process when its statistics are damaged (an exception of C++ that nobody catches). The
footer is a few structures in Thrift's compact protocol; every length is checked against the bytes there are.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

MAGIC = b"PAR1"
DEEPEST = 16
# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3  # numbers of the fields on the way to a column chunk's description
_TYPE, _NUM_VALUES, _UNCOMPRESSED = 1, 5, 6
BYTE_ARRAYS = (6, 7)  # the physical types of text
NUMBER_BYTES, TEXT_BYTES = 4, 16  # that a value takes once it is read


class Chunk(NamedTuple):
    """What the footer says of one column in one group of rows."""

    column: int
    is_text: bool
    n_values: int
    uncompressed: int  # bytes


def expanded_size(path: Path, chosen: Sequence[bool] | None = None) -> int:
    """What the values of some columns (None: of all) take in memory, by their number: dictionaries and runs pack millions into a few bytes.

    Raises:
        ValueError: The footer is damaged.
    """
    chunks = [chunk for chunk in chunks_of(path) if chosen is None or chunk.column >= len(chosen) or chosen[chunk.column]]
    return sum(max(chunk.n_values * (TEXT_BYTES if chunk.is_text else NUMBER_BYTES), chunk.uncompressed) for chunk in chunks)


def chunks_of(path: Path) -> list[Chunk]:
    """The column chunks of a file.

    Raises:
        ValueError: The footer is damaged.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - 8, 0))
        end = file.read(8)
        length = int.from_bytes(end[:4], "little")
        if end[4:] != MAGIC or length + 12 > size:
            raise ValueError("it has no footer")
        file.seek(size - 8 - length)
        footer = _Reader(file.read(length))
    try:
        groups = footer.struct().get(_ROW_GROUPS, [])
        return [_chunk(j, chunk[_META_DATA]) for group in groups for j, chunk in enumerate(group[_COLUMNS])]
    except (KeyError, TypeError, AttributeError, IndexError, struct.error):
        raise ValueError("its footer is damaged") from None


def _chunk(column: int, described: dict[int, Any]) -> Chunk:
    n_values, uncompressed = int(described[_NUM_VALUES]), int(described[_UNCOMPRESSED])
    if n_values < 0 or uncompressed < 0:
        raise ValueError("its footer names a negative size")
    return Chunk(column, described[_TYPE] in BYTE_ARRAYS, n_values, uncompressed)


class _Reader:
    """Values of the compact protocol, one after the other; an IndexError where the bytes end."""

    def __init__(self, content: bytes) -> None:
        self.content, self.position, self.depth = content, 0, 0

    def struct(self) -> dict[int, Any]:
        """Fields by number; those that are not on the way to a column chunk are read past."""
        found: dict[int, Any] = {}
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else self._zigzag()
            kind = header & 15
            found[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind)
        return found

    def _value(self, kind: int) -> Any:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError("the parts of its footer lie too deep in each other")
        found = self._of_kind(kind)
        self.depth -= 1
        return found

    def _of_kind(self, kind: int) -> Any:
        if kind in (_TRUE, _FALSE, _BYTE):  # in a list, where a truth value takes a byte too
            return self._byte()
        if kind in (_I16, _I32, _I64):
            return self._zigzag()
        if kind == _DOUBLE:
            return self._skip(8)
        if kind == _BINARY:
            return self._skip(self._varint())
        if kind in (_LIST, _SET):
            return self._list()
        if kind == _MAP:
            n = self._varint()
            kinds = self._byte() if n else 0
            return [self._value(one) for _ in range(n) for one in (kinds >> 4, kinds & 15)]
        if kind == _STRUCT:
            return self.struct()
        raise ValueError("its footer holds a value of an unknown kind")

    def _list(self) -> list[Any]:
        header = self._byte()
        n = header >> 4 if header >> 4 < 15 else self._varint()
        if n > len(self.content) - self.position:  # each takes at least a byte
            raise IndexError
        return [self._value(header & 15) for _ in range(n)]

    def _byte(self) -> int:
        self.position += 1
        return self.content[self.position - 1]

    def _skip(self, n: int) -> None:
        self.position += n
        if self.position > len(self.content):
            raise IndexError

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("its footer holds a number that is too long")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
