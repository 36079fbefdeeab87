"""Parquet footer: the number of values that each column claims to hold, read without pyarrow.

pyarrow crashes the process with an uncaught C++ exception if the statistics of a column chunk are damaged. The footer consists of a
few structures in Thrift's compact protocol; every length is checked against the available bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

MAGIC = b"PAR1"
NESTING_LIMIT = 16
# Types in the compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_ROW_GROUPS, _COLUMNS, _META_DATA = (
    4,
    1,
    3,
)  # numbers of the fields that lead to the metadata of a column chunk
_TYPE, _NUM_VALUES, _UNCOMPRESSED = 1, 5, 6
BYTE_ARRAYS = (6, 7)  # physical types of text
NUMBER_BYTES, TEXT_BYTES = 4, 16  # memory per value


class Chunk(NamedTuple):
    """One column in one row group, according to the footer."""

    column: int
    is_text: bool
    n_values: int
    uncompressed: int  # bytes


def expanded_size(path: Path, chosen: Sequence[bool] | None = None) -> int:
    """The memory that some columns take when read; by default all columns.

    This depends on the number of values, since dictionaries and run lengths pack millions of them into a few bytes.

    Raises:
        ValueError: The footer is damaged.
    """
    chunks = _chosen_chunks(path, chosen)
    return sum(
        max(chunk.n_values * (TEXT_BYTES if chunk.is_text else NUMBER_BYTES), chunk.uncompressed)
        for chunk in chunks
    )


def most_text(path: Path, chosen: Sequence[bool]) -> int:
    """The memory that texts of some columns can take at most, if all cells share the same one."""
    return sum(
        chunk.n_values * chunk.uncompressed
        for chunk in _chosen_chunks(path, chosen)
        if chunk.is_text
    )


def _chosen_chunks(path: Path, chosen: Sequence[bool] | None) -> list[Chunk]:
    return [
        chunk
        for chunk in column_chunks(path)
        if chosen is None or chunk.column >= len(chosen) or chosen[chunk.column]
    ]


def column_chunks(path: Path) -> list[Chunk]:
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
        return [
            _chunk(j, chunk[_META_DATA])
            for group in groups
            for j, chunk in enumerate(group[_COLUMNS])
        ]
    except (KeyError, TypeError, AttributeError, IndexError, struct.error):
        raise ValueError("its footer is damaged") from None


def _chunk(column: int, metadata: dict[int, Any]) -> Chunk:
    n_values, uncompressed = int(metadata[_NUM_VALUES]), int(metadata[_UNCOMPRESSED])
    if n_values < 0 or uncompressed < 0:
        raise ValueError("its footer contains a negative size")
    return Chunk(column, metadata[_TYPE] in BYTE_ARRAYS, n_values, uncompressed)


class _Reader:
    """Reads values of the compact protocol in sequence; raises IndexError at the end of the bytes."""

    def __init__(self, content: bytes) -> None:
        self.content, self.position, self.depth = content, 0, 0

    def struct(self) -> dict[int, Any]:
        """Fields by number."""
        found: dict[int, Any] = {}
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else self._zigzag()
            kind = header & 15
            found[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind)
        return found

    def _value(self, kind: int) -> Any:
        self.depth += 1
        if self.depth > NESTING_LIMIT:
            raise ValueError("its footer is nested too deeply")
        found = self._of_kind(kind)
        self.depth -= 1
        return found

    def _of_kind(self, kind: int) -> Any:
        if kind in (_TRUE, _FALSE, _BYTE):  # booleans in a list take a byte
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
            return [self._value(part) for _ in range(n) for part in (kinds >> 4, kinds & 15)]
        if kind == _STRUCT:
            return self.struct()
        raise ValueError("its footer contains a value of unknown type")

    def _list(self) -> list[Any]:
        header = self._byte()
        n = header >> 4 if header >> 4 < 15 else self._varint()
        if n > len(self.content) - self.position:  # each value takes at least a byte
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
                raise ValueError("its footer contains a number that is too long")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
